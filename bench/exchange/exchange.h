/* `treeattn-bench exchange`: the kinds of exchange side by side, by the bytes of a partial. */
#ifndef BENCH_EXCHANGE_H
#define BENCH_EXCHANGE_H

int exchange_command(int argc, char **argv);

#endif
