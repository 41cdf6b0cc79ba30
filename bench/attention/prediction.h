/* What the cost model says of a row of `treeattn-bench attention`. */
#ifndef BENCH_ATTENTION_MODEL_H
#define BENCH_ATTENTION_MODEL_H

#include <treeattn/attention.h>

#include "run.h"

/* The work of a row: all of its config but the algorithm and the grid. */
ta_status attention_model_config(const attention_row *row, ta_attention_config *config);

/* With a cluster, give a grid whose columns were left open those with the least predicted time. */
ta_status attention_model_columns(attention_row *row);

/* Fill in the predicted times for what the plan ran. */
ta_status attention_model_times(const attention_row *row, attention_times *times);

#endif
