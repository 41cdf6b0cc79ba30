/* The conformance suite (conformance.h) on ranks that are MPI processes. */
#include "lib/conformance.h"

#include <stdio.h>
#include <stdlib.h>

#include "rank.h"

int main(int argc, char **argv)
{
    ta_group *group = rank_begin(&argc, &argv, 60000);
    size_t most_bytes = argc > 1 ? strtoull(argv[1], NULL, 0) : 4 << 20;
    return rank_end(group, conformance_run(group, &conformance_host, most_bytes));
}
