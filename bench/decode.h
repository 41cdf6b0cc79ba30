/* `treeattn-bench decode`, and the exit codes of the program. */
#ifndef BENCH_DECODE_H
#define BENCH_DECODE_H

enum {
    EXIT_OK = 0,
    EXIT_WRONG = 1,    /* a result was wrong, or a step failed */
    EXIT_USAGE = 2,    /* the command line asks for what cannot be */
    EXIT_NO_DEVICE = 3 /* the device is not there, or cannot do it */
};

/* Run the command with the arguments after its name. Returns the exit code. */
int decode_command(int argc, char **argv);

#endif
