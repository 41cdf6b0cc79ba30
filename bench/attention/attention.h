/* `treeattn-bench attention`: attention over full sequences, forward and backward. */
#ifndef BENCH_ATTENTION_H
#define BENCH_ATTENTION_H

#include <stdio.h>

/* argv without the program and the command; returns the exit code. */
int attention_command(int argc, char **argv);

#endif
