/* What all candidates of a prediction are written with, in the words of ta_explain_json(). */
#ifndef BENCH_MODEL_CANDIDATE_H
#define BENCH_MODEL_CANDIDATE_H

#include <treeattn/cluster.h>

#include "common/json.h"

void model_write_cost(json_writer *json, int chosen, int fits, double memory_bytes, double seconds);
void model_write_call(json_writer *json, const char *name, const ta_predicted_call *call);

#endif
