/* `treeattn-bench model --kinds`: the kinds of exchange side by side. */
#ifndef BENCH_MODEL_KINDS_H
#define BENCH_MODEL_KINDS_H

#include <stdint.h>

#include <treeattn/cluster.h>

void model_kinds_header(const char *cluster);

/* A line for each tree among the candidates of one row. */
void model_kinds_row(int64_t tokens, int ranks, const ta_prediction *candidates, int count);

#endif
