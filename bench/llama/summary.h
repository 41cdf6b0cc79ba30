/* The table of `treeattn-bench llama`, its JSON and its CSV. docs/llama.md explains them. */
#ifndef BENCH_LLAMA_SUMMARY_H
#define BENCH_LLAMA_SUMMARY_H

#include "common/json.h"
#include "common/run_files.h"
#include "common/run_head.h"
#include "forecast.h"
#include "timing.h"

/* What was run with, for the head of all of them. */
typedef struct llama_head {
    const llama_flags *flags;
    const bench_machine *machine;
    const llama_config *config;
    const char *weights; /* where they are from */
    int argc;
    char **argv;
    const rank_place *places; /* of `ranks` ranks; NULL if nothing runs */
    int ranks;
} llama_head;

/* What all say of algorithm `index` of a row: the prompt and all new words; was there a prompt;
 * and what the paper has for this machine, 0 if nothing. */
double summary_together_us(const llama_result *result, int index, int64_t words);
int summary_has_prefill(const llama_head *head);
double summary_paper(const llama_head *head, const llama_result *result, int index);

/* A number that is 0 where it was not measured: then NaN. */
double summary_measured(double value);

void summary_header(const llama_head *head);

/* Rows of one result: one for each algorithm. `forecasts` has as many, or is NULL. */
void summary_rows(const llama_head *head, const llama_result *result,
                  const llama_forecast *forecasts);
/* `disturbed`: the most that other programs used of the CPUs in a row. */
void summary_footer(const llama_head *head, double disturbed);

/* With --predict: a table of forecasts alone. */
void summary_forecast_header(const llama_head *head);
void summary_forecast(const llama_row *row, const char *algorithm, const llama_forecast *forecast,
                      const llama_forecast *first, int64_t new_words);

void summary_json_begin(json_writer *json, const llama_head *head);
void summary_json_rows(json_writer *json, const llama_head *head, const llama_result *result,
                       const llama_forecast *forecasts);
void summary_json_forecast(json_writer *json, const llama_row *row, const char *algorithm,
                           const llama_forecast *forecast);
void summary_json_end(json_writer *json);

/* Rows of one result with commas, as summary_rows(). (summary_csv.c) */
void summary_csv_head(FILE *file);
void summary_csv_rows(FILE *file, const llama_head *head, const llama_result *result);

#endif
