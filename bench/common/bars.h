/* A picture for the terminal: a bar for each of some numbers, all on one linear scale, which ends
 * at 25 times the smallest; longer bars are cut, and end in an arrow. */
#ifndef BENCH_BARS_H
#define BENCH_BARS_H

#include <stdio.h>

#define BARS_MOST 64

typedef struct bars {
    int count, left_out; /* of more than BARS_MOST the last are left out, and said to be */
    struct {
        char group[48], name[24]; /* a group "" is that of the bar before */
        double value;
    } bar[BARS_MOST];
} bars;

void bars_add(bars *picture, const char *group, const char *name, double value);

/* At most 100 columns; every line begins with `prefix`. */
void bars_print(FILE *file, const char *prefix, const char *title, const bars *picture);

#endif
