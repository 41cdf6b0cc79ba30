/* `treeattn-bench llama`: a model of the Llama family, end to end. */
#ifndef BENCH_LLAMA_H
#define BENCH_LLAMA_H

/* Returns an exit code. */
int llama_command(int argc, char **argv);

#endif
