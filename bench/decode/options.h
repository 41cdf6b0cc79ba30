/* What `treeattn-bench decode` was asked to do, and the rows that follow from it. */
#ifndef BENCH_DECODE_OPTIONS_H
#define BENCH_DECODE_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <treeattn/treeattn.h>

#include "common/links.h"
#include "common/pages.h"
#include "common/rank_device.h"
#include "common/sweep.h"

typedef struct decode_options {
    sweep_options sweep; /* first; iterations 0: measure.c chooses for each row */
    arg_list algorithms;
    arg_list kv_dtypes; /* of K and V; none: as the query */
    int64_t head_dim, v_dim, latent, batch, query_tokens;
    int64_t ragged;        /* a mixed batch: options_query_tokens() */
    int64_t selected;      /* keys that each query row sees; 0: all */
    int64_t shared_prefix; /* first tokens that all sequences share; 0: none */
    int64_t group, graph;
    const char *link;    /* DELAY,RATE of emulated links, or NULL: there are none */
    link_speed speed;    /* of them */
    const char *cluster; /* "probe", a description, or NULL: nothing is predicted */
    int64_t map, block, layout, page_tokens;
    int64_t pages;   /* of memory, see below */
    const char *csv; /* a file, or NULL */
    int64_t brief;   /* fewer words around the table */
    int64_t wide;    /* every column */
    int64_t bars;    /* a picture below the table */
    int64_t tile;    /* of rows in reproducible mode; 0: there are none */
    int64_t query_placement, out_placement;
    int64_t weights; /* ta_weights */
    /* By options_try_device(): */
    rank_devices devices;
} decode_options;

/* Timed steps per row when `iterations` is 0, unless they would take long. */
#define OPTIONS_MAX_SAMPLES 20

/* Values of `layout`. */
enum { LAYOUT_TOKEN, LAYOUT_HEAD };

/* Values of `pages`: those of common/pages.h, and rows of each. */
enum { OPTIONS_BOTH_PAGES = PAGES_KINDS };

/* One row of the table. */
typedef struct bench_case {
    int32_t tokens, query_heads, kv_heads;
    int ranks, threads; /* threads of each rank */
    ta_dtype dtype;     /* of the query and the output */
    ta_dtype kv_dtype;  /* of K and V */
    ta_algorithm algorithm;
    int32_t tile; /* of reproducible mode; 0: off */
    int pages;    /* kind of memory pages */
} bench_case;

/* Read the flags of `treeattn-bench decode`. Returns 0, or -1 with a sentence in `error`. */
int options_parse(int argc, char **argv, decode_options *options, char *error, size_t capacity);

/* Open the device that --device is, and settle what depends on it. Returns an exit code, and a
 * sentence in `error` where that is not EXIT_OK. */
int options_try_device(decode_options *options, char *error, size_t capacity);

/* The rows, in the order of the table: pages, dtypes, heads, KV heads, ranks, threads, tokens,
 * algorithms. Free with free(). NULL without memory. */
bench_case *options_cases(const decode_options *options, const bench_machine *machine, int *count);

/* Query tokens of a sequence, the first row of one, and the rows of a step, of one head. In a mixed
 * batch one sequence in 32 prefills --query-tokens of them, one in 11 verifies 5, and the others
 * decode one. */
int64_t options_query_tokens(const decode_options *options, int64_t sequence);
int64_t options_first_row(const decode_options *options, int64_t sequence);
int64_t options_rows(const decode_options *options);

/* Place `i` of the list of a query row, for sequences of so many tokens: one position of each of
 * --selected equal parts of the sequence, another one for each row, in ascending order. And whether
 * the list has a position. */
int32_t options_selected(const decode_options *options, int32_t tokens, int64_t token_row,
                         int64_t i);
int options_sees(const decode_options *options, int32_t tokens, int64_t token_row,
                 int32_t position);

/* Do two rows differ in their algorithm alone? */
int options_same_work(const bench_case *a, const bench_case *b);

/* The words of the flags. */
const char *options_algorithm_name(const bench_case *row);
extern const char *const options_map_words[],
    *const options_layout_words[], *const options_placement_words[],
                                       *const options_pages_words[], *const options_weights_words[];

/* One line for each flag. */
void options_help(FILE *file);

#endif
