/* Graphs of recorded work, and the stopwatch: slots of the device vtable (src/device/device.h) that
 * need streams and events of the device's own. They are made when they are first asked for, and
 * freed with the device (device.c). A captured step is replayed by src/decode/replay.c. */
#include "gpu.h"

/* Other threads may go on with what a capture forbids: each rank captures for itself. */
static ta_status record(ta_gpu_device *gpu, void **stream)
{
    if (!gpu->recorder)
        TA_TRY(ta_gpu_check(gpu, hipStreamCreateWithFlags(&gpu->recorder, hipStreamNonBlocking),
                            "making a stream"));
    *stream = gpu->recorder;
    return ta_gpu_check(gpu, hipStreamBeginCapture(gpu->recorder, hipStreamCaptureModeThreadLocal),
                        "beginning a capture");
}

ta_status ta_gpu_record(ta_device *device, void **stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    TA_ON_GPU(gpu, record(gpu, stream));
}

static ta_status recorded(ta_gpu_device *gpu, void *stream, void **graph)
{
    hipGraph_t captured = NULL;
    hipGraphExec_t made = NULL;
    hipError_t error = hipStreamEndCapture((hipStream_t)stream, &captured);
    if (error == hipSuccess && graph)
        error = hipGraphInstantiateWithFlags(&made, captured, 0);
    if (captured)
        (void)hipGraphDestroy(captured);
    if (!graph) { /* whatever it was, nobody wants it */
        (void)hipGetLastError();
        return TA_OK;
    }
    TA_TRY(ta_gpu_check(gpu, error, "capturing a step"));
    *graph = made;
    return TA_OK;
}

ta_status ta_gpu_recorded(ta_device *device, void *stream, void **graph)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    TA_ON_GPU(gpu, recorded(gpu, stream, graph));
}

ta_status ta_gpu_replay(ta_device *device, void *graph, void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    TA_ON_GPU(gpu, ta_gpu_check(gpu, hipGraphLaunch((hipGraphExec_t)graph, (hipStream_t)stream),
                                "launching a graph"));
}

void ta_gpu_drop(ta_device *device, void *graph)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    int before;
    if (!graph || ta_gpu_enter(gpu, &before) != TA_OK)
        return;
    (void)hipDeviceSynchronize(); /* it may be running */
    (void)hipGraphExecDestroy((hipGraphExec_t)graph);
    ta_gpu_leave(gpu, before);
}

static ta_status make_event(ta_gpu_device *gpu, hipEvent_t *event)
{
    if (*event)
        return TA_OK;
    return ta_gpu_check(gpu, hipEventCreateWithFlags(event, hipEventDefault), "making an event");
}

static ta_status record_span(ta_gpu_device *gpu, int end, void *stream)
{
    hipEvent_t *event = &gpu->spans_at[2 * (gpu->spans - end) + end];
    TA_TRY(make_event(gpu, event));
    TA_TRY(ta_gpu_check(gpu, hipEventRecord(*event, (hipStream_t)stream), "recording an event"));
    gpu->spans += !end;
    return TA_OK;
}

ta_status ta_gpu_span(ta_device *device, int end, void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    int full = end ? gpu->spans > TA_GPU_SPANS : gpu->spans >= TA_GPU_SPANS;
    if (device->ops->capturing(device, stream))
        return TA_OK;
    if (full) {
        gpu->spans = TA_GPU_SPANS + 1; /* the last one has ended, and no other begins */
        return TA_OK;
    }
    TA_ON_GPU(gpu, record_span(gpu, end, stream));
}

/* The stream has come past all of them. */
static ta_status add_spans(ta_gpu_device *gpu)
{
    int spans = gpu->spans < TA_GPU_SPANS ? gpu->spans : TA_GPU_SPANS;
    gpu->spans = gpu->device.timing = 0;
    for (int i = 0; i < spans; i++) {
        float milliseconds = 0.0f;
        const hipEvent_t *at = &gpu->spans_at[2 * i];
        TA_TRY(ta_gpu_check(gpu, hipEventElapsedTime(&milliseconds, at[0], at[1]),
                            "asking for the time between two events"));
        ta_device_count(&gpu->device.stats.attend_ns, (uint64_t)((double)milliseconds * 1e6));
    }
    return TA_OK;
}

static ta_status record_mark(ta_gpu_device *gpu, hipEvent_t *mark, void *stream)
{
    TA_TRY(make_event(gpu, mark));
    return ta_gpu_check(gpu, hipEventRecord(*mark, (hipStream_t)stream), "recording an event");
}

static ta_status start_timer(ta_gpu_device *gpu, void *stream)
{
    TA_TRY(record_mark(gpu, &gpu->marks[0], stream));
    gpu->device.timing = 1;
    gpu->spans = 0;
    return TA_OK;
}

ta_status ta_gpu_timer_start(ta_device *device, void *stream)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    TA_ON_GPU(gpu, start_timer(gpu, stream));
}

static ta_status read_timer(ta_gpu_device *gpu, void *stream, double *seconds)
{
    float milliseconds = 0.0f;
    if (!gpu->marks[0])
        return ta_gpu_core->fail(TA_ERR_INVALID, "the stopwatch of %s was never started",
                                 gpu->device.name);
    TA_TRY(record_mark(gpu, &gpu->marks[1], stream));
    ta_device_count(&gpu->device.stats.waits, 1);
    TA_TRY(ta_gpu_check(gpu, hipEventSynchronize(gpu->marks[1]), "waiting for an event"));
    TA_TRY(ta_gpu_check(gpu, hipEventElapsedTime(&milliseconds, gpu->marks[0], gpu->marks[1]),
                        "asking for the time between two events"));
    TA_TRY(add_spans(gpu));
    *seconds = (double)milliseconds * 1e-3;
    return TA_OK;
}

ta_status ta_gpu_timer_read(ta_device *device, void *stream, double *seconds)
{
    ta_gpu_device *gpu = ta_gpu_of(device);
    TA_ON_GPU(gpu, read_timer(gpu, stream, seconds));
}

void ta_gpu_free_graphs(ta_gpu_device *gpu)
{
    int before;
    if (ta_gpu_enter(gpu, &before) != TA_OK)
        return;
    for (int i = 0; i < 2; i++)
        if (gpu->marks[i])
            (void)hipEventDestroy(gpu->marks[i]);
    for (int i = 0; i < 2 * TA_GPU_SPANS; i++)
        if (gpu->spans_at[i])
            (void)hipEventDestroy(gpu->spans_at[i]);
    if (gpu->recorder)
        (void)hipStreamDestroy(gpu->recorder);
    ta_gpu_leave(gpu, before);
}
