/* Graphs: running captured work, and comparing two of them. A launch is refused if memory that the
 * capture saw has been freed since: a graph repeats addresses, not variables. */
#include "graph.h"

#include <stdio.h>

#include "random_source.h"

namespace simt
{

/* Any order that the dependencies allow is right; the settings choose one. */
static size_t choose_node(const std::vector<size_t> &ready, const settings &s,
                          random_source *random)
{
    switch (s.order) {
    case SIMT_FORWARD:
        return 0;
    case SIMT_REVERSE:
        return ready.size() - 1;
    default:
        return random->below(static_cast<unsigned>(ready.size()));
    }
}

static bool is_ready(const node &n, const std::vector<bool> &done)
{
    for (size_t before : n.after)
        if (!done[before])
            return false;
    return true;
}

static hipError_t run_nodes(const std::vector<node> &nodes, run_context &context)
{
    settings s = current_settings();
    random_source random = {s.seed + context.ordinal};
    std::vector<bool> done(nodes.size(), false);
    for (size_t ran = 0; ran < nodes.size(); ran++) {
        std::vector<size_t> ready;
        for (size_t i = 0; i < nodes.size(); i++)
            if (!done[i] && is_ready(nodes[i], done))
                ready.push_back(i);
        size_t next = ready[choose_node(ready, s, &random)];
        run_context inner = {context.device, context.ordinal * 1000003 + next, ""};
        if (hipError_t error = nodes[next].work.run(inner)) {
            context.why =
                "node " + std::to_string(next) + ", " + nodes[next].work.name + ": " + inner.why;
            return error;
        }
        done[next] = true;
    }
    return hipSuccess;
}

static hipError_t check_memory(const std::vector<node> &nodes)
{
    for (size_t i = 0; i < nodes.size(); i++)
        for (const allocation_use &use : nodes[i].uses)
            if (!allocation_alive(use))
                return fail(hipErrorInvalidValue,
                            "hipGraphLaunch: node %zu, %s, uses %p, which was freed after the "
                            "capture",
                            i, nodes[i].work.name.c_str(), use.address);
    return hipSuccess;
}

/* The first byte in which two lists differ, or their common length. */
static size_t first_difference(const std::vector<unsigned char> &a,
                               const std::vector<unsigned char> &b)
{
    size_t i = 0;
    while (i < a.size() && i < b.size() && a[i] == b[i])
        i++;
    return i;
}

} // namespace simt

using namespace simt;

hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *exec, hipGraph_t graph, unsigned long long)
{
    if (!exec || !graph)
        return fail(hipErrorInvalidValue, "hipGraphInstantiate: no graph, or exec is NULL");
    *exec = new simt_graph_exec{std::make_shared<const std::vector<node>>(graph->nodes)};
    return hipSuccess;
}

hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream)
{
    if (!exec)
        return fail(hipErrorInvalidValue, "hipGraphLaunch: no graph");
    if (hipError_t error = check_memory(*exec->nodes))
        return error;
    count(counted.graph_launches);
    std::shared_ptr<const std::vector<node>> nodes = exec->nodes;
    work launch;
    launch.name = "graph";
    launch.run = [nodes](run_context &context) { return run_nodes(*nodes, context); };
    for (const node &n : *nodes)
        launch.addresses.insert(launch.addresses.end(), n.work.addresses.begin(),
                                n.work.addresses.end());
    return submit(stream, std::move(launch));
}

hipError_t hipGraphExecDestroy(hipGraphExec_t exec)
{
    delete exec;
    return hipSuccess;
}

hipError_t hipGraphDestroy(hipGraph_t graph)
{
    delete graph;
    return hipSuccess;
}

int simt_graphs_equal(hipGraph_t a, hipGraph_t b, char *why, size_t why_bytes)
{
    if (a->nodes.size() != b->nodes.size()) {
        snprintf(why, why_bytes, "%zu nodes and %zu nodes", a->nodes.size(), b->nodes.size());
        return 0;
    }
    for (size_t i = 0; i < a->nodes.size(); i++) {
        const node &x = a->nodes[i], &y = b->nodes[i];
        if (x.work.name != y.work.name) {
            snprintf(why, why_bytes, "node %zu is %s and %s", i, x.work.name.c_str(),
                     y.work.name.c_str());
            return 0;
        }
        if (x.after != y.after) {
            snprintf(why, why_bytes, "node %zu, %s, comes after other nodes", i,
                     x.work.name.c_str());
            return 0;
        }
        if (x.work.identity != y.work.identity) {
            snprintf(why, why_bytes, "node %zu, %s, differs in sizes or arguments, at byte %zu", i,
                     x.work.name.c_str(), first_difference(x.work.identity, y.work.identity));
            return 0;
        }
    }
    return 1;
}
