/* `treeattn-bench selftest`: see selftest.c. */
#ifndef BENCH_SELFTEST_H
#define BENCH_SELFTEST_H

int selftest_command(int argc, char **argv);

#endif
