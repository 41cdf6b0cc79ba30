/* `treeattn-bench decode`: steps of decode on this machine. */
#ifndef BENCH_DECODE_H
#define BENCH_DECODE_H

/* Run the command with the arguments after its name. Returns the exit code. */
int decode_command(int argc, char **argv);

#endif
