/* What was captured on a stream, as a graph that can be launched. For tests on the executor whose
 * ranks capture steps. */
#ifndef TESTS_CAPTURED_H
#define TESTS_CAPTURED_H

#include "base/status.h"
#include "expect.h"
#include "simt/simt_runtime.h"

typedef struct captured {
    hipGraph_t graph;
    hipGraphExec_t exec;
} captured;

static inline ta_status captured_begin(hipStream_t stream)
{
    RANK_EXPECT(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal) == hipSuccess);
    return TA_OK;
}

static inline ta_status captured_end(captured *c, hipStream_t stream)
{
    RANK_EXPECT(hipStreamEndCapture(stream, &c->graph) == hipSuccess);
    RANK_EXPECT(hipGraphInstantiateWithFlags(&c->exec, c->graph, 0) == hipSuccess);
    return TA_OK;
}

static inline ta_status captured_free(captured *c)
{
    RANK_EXPECT(hipGraphExecDestroy(c->exec) == hipSuccess);
    RANK_EXPECT(hipGraphDestroy(c->graph) == hipSuccess);
    return TA_OK;
}

#endif
