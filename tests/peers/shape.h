/* The direct exchange that test_alone.cpp and test_rules.cpp make: its sizes, what a rank has on
 * its device, and what its kernels are given. */
#ifndef TESTS_PEERS_SHAPE_H
#define TESTS_PEERS_SHAPE_H

#include "exchange/slab.h"

static const int ranks = 4, last = ranks - 1, heads = 6, rows = 3, v_dim = 20, blocks = 4;
static const int record_floats = v_dim + 2, records = heads * rows;
/* With the fault behind its records. */
static const size_t partial_bytes = records * record_floats * sizeof(float) + sizeof(ta_fault);

struct device_side {
    char *slab;
    ta_peer_control *control;
    float *records, *out;
    ta_fault *report; /* pinned */
};

static inline size_t slab_bytes()
{
    return static_cast<size_t>(ta_peer_lines(ranks, blocks)) * TA_PEER_LINE +
           (2 * ranks + 1) * TA_PROBE_WORDS * sizeof(float);
}

/* Of rank 0, in one shot, with the output on all ranks. */
static inline ta_peers_params params_of(const device_side &d, uint64_t patience)
{
    ta_peers_params p = {};
    ta_problem &problem = p.finish.problem;
    problem.batch = 1;
    problem.query_tokens = rows;
    problem.query_heads = heads;
    problem.v_dim = v_dim;
    problem.out_dtype = TA_F32;
    problem.rows = rows;
    p.finish.last.records = d.records;
    p.finish.last.v_dim = v_dim;
    p.finish.last.fault = reinterpret_cast<ta_fault *>(d.records + records * record_floats);
    p.finish.heads = heads;
    p.finish.out = {d.out, 0, heads * v_dim, v_dim};
    p.finish.report = d.report;
    p.control = d.control;
    p.patience = patience;
    p.partial_floats = TA_PROBE_WORDS;
    p.ranks = ranks;
    p.blocks = blocks;
    p.parts = p.world = ranks;
    p.placement = TA_PLACE_ALL;
    p.shots = 1;
    return p;
}

#endif
