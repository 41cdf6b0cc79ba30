/* The table on standard output: a header of `#` lines, a line of units, a line for each row. */
#ifndef BENCH_TABLE_H
#define BENCH_TABLE_H

#include "common/machine.h"
#include "common/run_head.h"
#include "options.h"
#include "rows.h"

/* `plan` is what ta_explain() says of the last row, `places` where each of `ranks` runs. */
void table_header(const decode_options *options, const bench_machine *machine, int rows,
                  const char *plan, const rank_place *places, int ranks);

/* Before the rows of a kind of pages: what the system gave. The first time also the columns. */
void table_pages(int pages, double mapped_bytes, double huge_bytes, int is_first);
void table_row(const bench_result *result);
void table_footer(const decode_options *options, const bench_result *results, int count);

#endif
