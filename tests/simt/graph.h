/* Captured work: what capture.cpp collects and graph.cpp runs. */
#ifndef SIMT_GRAPH_H
#define SIMT_GRAPH_H

#include "stream.h"

namespace simt
{

struct node {
    simt::work work;
    std::vector<size_t> after;        /* nodes, all earlier in the list */
    std::vector<allocation_use> uses; /* memory that was there at the capture */
};

struct capture {
    std::vector<node> nodes;
    const queue *origin;
    hipStreamCaptureMode mode;
    std::thread::id thread;
    bool spoilt = false, ended = false;
    std::string reason; /* what spoilt it */
};

} // namespace simt

struct simt_graph {
    std::vector<simt::node> nodes;
};

struct simt_graph_exec {
    std::shared_ptr<const std::vector<simt::node>> nodes; /* kept by launches that wait to run */
};

#endif
