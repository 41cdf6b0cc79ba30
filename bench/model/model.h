/* `treeattn-bench model`: predicted decode steps on clusters that need not be here. */
#ifndef BENCH_MODEL_H
#define BENCH_MODEL_H

#include <stdio.h>

/* Returns an exit code. */
int model_command(int argc, char **argv);
void model_help(FILE *file);

#endif
