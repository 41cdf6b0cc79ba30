/* What every run begins with, as lines of a table and in its JSON file: the command, versions, the
 * machine, and where each rank runs. run_files.h opens such a file. */
#ifndef BENCH_RUN_HEAD_H
#define BENCH_RUN_HEAD_H

#include <stdio.h>

#include "json.h"
#include "machine.h"

/* Where a rank runs. */
typedef struct rank_place {
    char host[64], device[48];
    char product[128]; /* of a GPU */
} rank_place;

/* The places of so many ranks, with `device` for all of them or, if `one_each`, a device of that
 * kind for each rank of a host. For all processes together. Free with free(); NULL without
 * memory. */
rank_place *places_find(const char *device, int one_each, int ranks);

/* Lines "# rank …" for people, ranks that are alike on one line. */
void places_print(const rank_place *places, int ranks);

/* Lines "# machine …" and, of processes, "# ranks …". */
void run_machine_print(const bench_machine *machine);

typedef struct run_head {
    const char *program; /* "treeattn-bench attention" */
    int argc;            /* the command line, from behind the command on */
    char **argv;
    const bench_machine *machine;
    const rank_place *places; /* or NULL */
    int ranks;
} run_head;

/* Inside the object that is the file. */
void run_head_write(json_writer *json, const run_head *head);

#endif
