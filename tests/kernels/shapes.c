/* The shape that hip/attend/shape.h gives an attend block, for shapes.py, which compiles and runs
 * this. The arguments are a device's limits (units, wave, matrix cores, shared memory of a block
 * and of a unit) and a problem: the type of its elements by number, query rows per KV head, 1 if it
 * is aligned. K and V have 128 dimensions. Prints the fields that the report needs, by name. */
#include <stdio.h>
#include <stdlib.h>

#include "../../hip/attend/shape.h"

int main(int argc, char **argv)
{
    if (argc != 9)
        return 2;
    int n[9];
    for (int i = 1; i < 9; i++)
        n[i] = atoi(argv[i]);
    ta_gpu_limits limits = {n[1], n[2], n[3], n[4], n[5], 0};
    ta_problem p = {.batch = 1, .query_tokens = 1, .rows = 1, .query_heads = n[7], .kv_heads = 1};
    p.k_dim = p.v_dim = 128;
    p.query_dtype = p.kv_dtype = (ta_dtype)n[6];
    ta_attend_shape s;
    if (!n[8] || !limits.matrix || !ta_mma_shape(&limits, &p, &s))
        s = ta_fma_shape(&p, n[8]);
    printf("matrix %d rows %d threads %d tile %d team_rows %d team_threads %d lanes %d tiles %d ",
           s.matrix, s.rows, s.threads, s.tile, s.team_rows, s.team_threads, s.lanes, s.tiles);
    printf("row_tiles %d k_parts %d shared_bytes %d blocks_per_unit %d\n", s.row_tiles, s.k_parts,
           s.shared_bytes, ta_shape_blocks_per_unit(&limits, &s));
    return 0;
}
