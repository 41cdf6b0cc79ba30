/* What treeattn-bench returns to the shell. */
#ifndef BENCH_EXIT_CODE_H
#define BENCH_EXIT_CODE_H

enum {
    EXIT_OK = 0,
    EXIT_WRONG = 1,    /* a result was wrong, or a step failed */
    EXIT_USAGE = 2,    /* the command line asks for what cannot be */
    EXIT_NO_DEVICE = 3 /* the device is not there, or cannot do it */
};

#endif
