/* Capturing a stream: its work becomes nodes of a graph and does not run. Whatever could not be
 * repeated by the graph, allocating and waiting on the host, is refused and spoils the capture.
 * Other streams join by waiting for an event of a captured one, and must be joined back before the
 * end. */
#include "graph.h"

#include <algorithm>

namespace simt
{

static hipError_t spoil(capture *c, hipError_t error, const char *call)
{
    if (!c->spoilt)
        c->reason = call;
    c->spoilt = true;
    return fail(error, "%s is not allowed while a stream is captured", call);
}

/* What this thread may do while there are captures. */
static thread_local hipStreamCaptureMode thread_mode = hipStreamCaptureModeGlobal;

bool thread_is_relaxed()
{
    return thread_mode == hipStreamCaptureModeRelaxed;
}

bool capture_forbids_wait(const char *call, const queue *q)
{
    std::thread::id me = std::this_thread::get_id();
    for (const std::shared_ptr<queue> &other : queues().all) {
        capture *c = other->capture.get();
        bool strict = c && c->mode != hipStreamCaptureModeRelaxed && c->thread == me;
        if (c && (other.get() == q || strict)) {
            spoil(c, hipErrorStreamCaptureUnsupported, call);
            return true;
        }
    }
    return false;
}

bool capture_forbids_null(int device)
{
    for (const std::shared_ptr<queue> &other : queues().all)
        if (other->capture && other->device == device && other->blocking) {
            spoil(other->capture.get(), hipErrorStreamCaptureImplicit, "the null stream");
            return true;
        }
    return false;
}

bool capture_forbids(const char *call)
{
    std::thread::id me = std::this_thread::get_id();
    queue_lock lock(queues().mutex);
    for (const std::shared_ptr<queue> &other : queues().all) {
        capture *c = other->capture.get();
        if (c && (c->mode == hipStreamCaptureModeGlobal ||
                  (c->mode == hipStreamCaptureModeThreadLocal && c->thread == me))) {
            spoil(c, hipErrorStreamCaptureUnsupported, call);
            return true;
        }
    }
    return false;
}

static hipError_t spoilt_status(const capture &c)
{
    return fail(hipErrorStreamCaptureInvalidated, "the capture was spoilt by: %s",
                c.reason.c_str());
}

hipError_t capture_work(queue *q, work &&work)
{
    capture *c = q->capture.get();
    if (c->spoilt)
        return spoilt_status(*c);
    node n;
    n.uses = find_allocations(work.addresses);
    n.work = std::move(work);
    n.after = std::move(q->frontier);
    q->frontier.assign(1, c->nodes.size());
    c->nodes.push_back(std::move(n));
    return hipSuccess;
}

hipError_t capture_join(queue *q, const std::shared_ptr<capture> &c,
                        const std::vector<size_t> &nodes)
{
    if (c->ended || (q->capture && q->capture != c))
        return fail(hipErrorStreamCaptureIsolation,
                    "hipStreamWaitEvent: the event belongs to a capture that ended, or to another");
    q->capture = c;
    q->frontier.insert(q->frontier.end(), nodes.begin(), nodes.end());
    return hipSuccess;
}

/* Does every node come before the end of the stream that began the capture? */
static bool all_joined(const capture &c)
{
    std::vector<bool> joined(c.nodes.size(), false);
    for (size_t last : c.origin->frontier)
        joined[last] = true;
    for (size_t i = c.nodes.size(); i-- > 0;)
        for (size_t before : c.nodes[i].after)
            joined[before] = joined[before] || joined[i];
    return std::find(joined.begin(), joined.end(), false) == joined.end();
}

static void release_streams(const std::shared_ptr<capture> &c)
{
    for (const std::shared_ptr<queue> &other : queues().all)
        if (other->capture == c) {
            other->capture = nullptr;
            other->frontier.clear();
        }
}

static hipError_t check_end(const capture &c, const queue *q)
{
    if (c.origin != q)
        return fail(hipErrorStreamCaptureUnmatched,
                    "hipStreamEndCapture: this stream only joined the capture");
    if (c.mode != hipStreamCaptureModeRelaxed && c.thread != std::this_thread::get_id())
        return fail(hipErrorStreamCaptureWrongThread,
                    "hipStreamEndCapture: another thread began this capture");
    return hipSuccess;
}

} // namespace simt

using namespace simt;

hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode)
{
    queue_lock lock(queues().mutex);
    std::shared_ptr<queue> q = find_queue(stream, "hipStreamBeginCapture");
    if (!q)
        return hipErrorInvalidHandle;
    if (hipError_t stuck = device_status(q->device))
        return stuck;
    if (!stream)
        return fail(hipErrorStreamCaptureUnsupported,
                    "hipStreamBeginCapture: the null stream can't be captured");
    if (q->capture)
        return fail(hipErrorInvalidValue, "hipStreamBeginCapture: the stream is captured already");
    q->capture = std::make_shared<capture>();
    q->capture->origin = q.get();
    q->capture->mode = mode;
    q->capture->thread = std::this_thread::get_id();
    return hipSuccess;
}

hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph)
{
    queue_lock lock(queues().mutex);
    std::shared_ptr<queue> q = find_queue(stream, "hipStreamEndCapture");
    if (!q)
        return hipErrorInvalidHandle;
    std::shared_ptr<capture> c = q->capture;
    if (!graph || !c)
        return fail(hipErrorInvalidValue,
                    "hipStreamEndCapture: the stream is not captured, or graph is NULL");
    *graph = nullptr;
    if (hipError_t error = check_end(*c, q.get()))
        return error;
    bool joined = all_joined(*c);
    release_streams(c);
    c->ended = true;
    if (c->spoilt)
        return spoilt_status(*c);
    if (!joined)
        return fail(hipErrorStreamCaptureUnjoined,
                    "hipStreamEndCapture: work of another stream was not joined back by an event");
    *graph = new simt_graph{std::move(c->nodes)};
    return hipSuccess;
}

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode)
{
    std::swap(*mode, thread_mode);
    return hipSuccess;
}

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status)
{
    queue_lock lock(queues().mutex);
    std::shared_ptr<queue> q = find_queue(stream, "hipStreamIsCapturing");
    if (!q)
        return hipErrorInvalidHandle;
    *status = !q->capture          ? hipStreamCaptureStatusNone
              : q->capture->spoilt ? hipStreamCaptureStatusInvalidated
                                   : hipStreamCaptureStatusActive;
    return hipSuccess;
}
