/* Events: marks in the work of a stream that the host or another stream can wait for. An event that
 * was recorded while its stream was captured marks nodes of the graph instead, and only streams can
 * wait for it. */
#include <set>
#include <time.h>

#include "stream.h"

namespace simt
{

static std::set<hipEvent_t> &live_events()
{
    static std::set<hipEvent_t> events;
    return events;
}

/* With the lock. */
static bool known(hipEvent_t event, const char *call)
{
    if (live_events().count(event))
        return true;
    fail(hipErrorInvalidHandle, "%s: %p is not an event", call, static_cast<void *>(event));
    return false;
}

static double now_milliseconds()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

/* With the lock: the host may not ask about an event that belongs to a capture. */
static hipError_t check_host_use(hipEvent_t event, const char *call)
{
    if (!known(event, call))
        return hipErrorInvalidHandle;
    if (event->capture)
        return fail(hipErrorStreamCaptureUnsupported, "%s: the event was recorded in a capture",
                    call);
    if (!thread_is_relaxed() && capture_forbids_wait(call, event->recorded.on.get()))
        return hipErrorStreamCaptureUnsupported;
    return hipSuccess;
}

} // namespace simt

using namespace simt;

hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned flags)
{
    if (!event)
        return fail(hipErrorInvalidValue, "hipEventCreate: event is NULL");
    queue_lock lock(queues().mutex);
    *event = new simt_event{flags, {nullptr, 0}, nullptr, nullptr, {}};
    live_events().insert(*event);
    return hipSuccess;
}

int simt_events(void)
{
    queue_lock lock(queues().mutex);
    return static_cast<int>(live_events().size());
}

hipError_t hipEventCreate(hipEvent_t *event)
{
    return hipEventCreateWithFlags(event, hipEventDefault);
}

hipError_t hipEventDestroy(hipEvent_t event)
{
    queue_lock lock(queues().mutex);
    if (!known(event, "hipEventDestroy"))
        return hipErrorInvalidHandle;
    live_events().erase(event);
    delete event;
    return hipSuccess;
}

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream)
{
    queue_lock lock(queues().mutex);
    std::shared_ptr<queue> q = find_queue(stream, "hipEventRecord");
    if (!q || !known(event, "hipEventRecord"))
        return hipErrorInvalidHandle;
    if (hipError_t stuck = device_status(q->device))
        return stuck;
    event->capture = q->capture;
    if (q->capture) {
        event->nodes = q->frontier;
        return hipSuccess;
    }
    if (!stream && capture_forbids_null(q->device))
        return hipErrorStreamCaptureImplicit;
    std::shared_ptr<double> time = std::make_shared<double>(0);
    work mark;
    mark.name = "event";
    mark.run = [time](run_context &) {
        *time = now_milliseconds();
        return hipSuccess;
    };
    event->milliseconds = time;
    event->recorded = dependency{q, append(q, std::move(mark))};
    return hipSuccess;
}

hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned)
{
    queue_lock lock(queues().mutex);
    std::shared_ptr<queue> q = find_queue(stream, "hipStreamWaitEvent");
    if (!q || !known(event, "hipStreamWaitEvent"))
        return hipErrorInvalidHandle;
    if (event->capture)
        return capture_join(q.get(), event->capture, event->nodes);
    if (!event->recorded.on)
        return hipSuccess;
    if (q->capture)
        return fail(hipErrorStreamCaptureIsolation,
                    "hipStreamWaitEvent: a captured stream can't wait for work outside");
    work wait;
    wait.name = "wait";
    wait.run = [](run_context &) { return hipSuccess; };
    append(q, std::move(wait), {event->recorded});
    return hipSuccess;
}

hipError_t hipEventSynchronize(hipEvent_t event)
{
    queue_lock lock(queues().mutex);
    if (hipError_t error = check_host_use(event, "hipEventSynchronize"))
        return error;
    count(counted.host_waits);
    if (!event->recorded.on)
        return hipSuccess;
    dependency mark = event->recorded; /* the event may be recorded again meanwhile */
    wait_for(lock, mark.on, mark.number);
    return device_status(mark.on->device);
}

hipError_t hipEventQuery(hipEvent_t event)
{
    queue_lock lock(queues().mutex);
    if (hipError_t error = check_host_use(event, "hipEventQuery"))
        return error;
    if (!event->recorded.on)
        return hipSuccess;
    if (hipError_t stuck = device_status(event->recorded.on->device))
        return stuck;
    if (event->recorded.on->done >= event->recorded.number)
        return hipSuccess;
    want(event->recorded.on.get(), event->recorded.number);
    return hipErrorNotReady;
}

hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t first, hipEvent_t second)
{
    queue_lock lock(queues().mutex);
    const hipEvent_t both[] = {first, second};
    for (hipEvent_t event : both) {
        if (!known(event, "hipEventElapsedTime"))
            return hipErrorInvalidHandle;
        if (!event->recorded.on || event->flags & hipEventDisableTiming)
            return fail(hipErrorInvalidHandle,
                        "hipEventElapsedTime: an event was not recorded, or without timing");
        if (event->recorded.on->done < event->recorded.number)
            return hipErrorNotReady;
    }
    *milliseconds = static_cast<float>(*second->milliseconds - *first->milliseconds);
    return hipSuccess;
}
