/* Queues and the calls on streams: see stream.h. */
#include "stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>

#include "random_source.h"

namespace simt
{

queue_table &queues()
{
    static queue_table table;
    return table;
}

static std::set<hipStream_t> &live_streams()
{
    static std::set<hipStream_t> streams;
    return streams;
}

/* A wakeup can get lost (glibc before 2.41, sourceware's bug 25847), and while kernels wait for
 * each other no other one comes: so everybody also looks by itself. */
template <class Condition> static void wait_until(queue_lock &lock, Condition condition)
{
    while (!queues().changed.wait_for(lock, std::chrono::milliseconds(20), condition))
        continue;
}

/* ---- The thread of a queue ----------------------------------------------------------------- */

static bool ready(const queue &q)
{
    if (q.pieces.empty() || q.pieces.front().number > q.wanted)
        return false;
    for (const dependency &d : q.pieces.front().after)
        if (d.on->done < d.number)
            return false;
    return true;
}

static void run_piece(const queue &q, const queued &piece)
{
    if (device_failed(q.device))
        return;
    run_context context = {q.device, piece.number, ""};
    memory_open();
    hipError_t error = piece.work.run(context);
    memory_close();
    if (error != hipSuccess)
        fail_device(q.device, error, piece.work.name + ": " + context.why);
}

static void queue_main(queue *q)
{
    queue_table &table = queues();
    queue_lock lock(table.mutex);
    for (;;) {
        wait_until(lock, [q] { return q->closing || ready(*q); });
        if (q->closing)
            return;
        queued piece = std::move(q->pieces.front());
        q->pieces.pop_front();
        lock.unlock();
        run_piece(*q, piece);
        lock.lock();
        /* A reset of the device may have declared it done meanwhile. */
        q->done = std::max(q->done, piece.number);
        table.changed.notify_all();
    }
}

static std::shared_ptr<queue> make_queue(int device, bool blocking)
{
    std::shared_ptr<queue> q = std::make_shared<queue>();
    q->device = device;
    q->blocking = blocking;
    q->thread = std::thread(queue_main, q.get());
    queues().all.push_back(q);
    return q;
}

/* Stop the thread of a queue that nobody will use again. */
static void close_queue(queue_lock &lock, const std::shared_ptr<queue> &q)
{
    queue_table &table = queues();
    q->closing = true;
    table.changed.notify_all();
    lock.unlock();
    q->thread.join();
    lock.lock();
    table.all.erase(std::remove(table.all.begin(), table.all.end(), q), table.all.end());
}

static std::atomic<bool> ending;

bool process_ends()
{
    return ending;
}

/* Work that nobody waited for is dropped when the process ends. */
queue_table::~queue_table()
{
    ending = true;
    queue_lock lock(mutex);
    while (!all.empty()) {
        std::shared_ptr<queue> q = all.back();
        close_queue(lock, q);
        q->pieces.clear();
    }
}

/* ---- Called with the lock ------------------------------------------------------------------ */

std::shared_ptr<queue> find_queue(hipStream_t stream, const char *call)
{
    if (!stream) {
        int device = current_device();
        std::shared_ptr<queue> &q = queues().null_queues[device];
        if (!q)
            q = make_queue(device, true);
        return q;
    }
    if (!live_streams().count(stream)) {
        fail(hipErrorInvalidHandle, "%s: %p is not a stream", call, static_cast<void *>(stream));
        return nullptr;
    }
    return stream->queue;
}

void want(queue *q, uint64_t number)
{
    if (q->wanted >= number)
        return;
    q->wanted = number;
    for (const queued &piece : q->pieces)
        if (piece.number <= number)
            for (const dependency &d : piece.after)
                want(d.on.get(), d.number);
    queues().changed.notify_all();
}

void wait_for(queue_lock &lock, const std::shared_ptr<queue> &q, uint64_t number)
{
    want(q.get(), number);
    wait_until(lock, [&] { return q->done >= number; });
}

/* The null stream's work comes after what is in the blocking streams of its device, and before what
 * is added to them later. */
static void take_turns(const std::shared_ptr<queue> &q, std::vector<dependency> *after)
{
    const std::shared_ptr<queue> &null_queue = queues().null_queues[q->device];
    if (!q->blocking || !null_queue)
        return;
    if (q != null_queue) {
        after->push_back(dependency{null_queue, null_queue->last});
        return;
    }
    for (const std::shared_ptr<queue> &other : queues().all)
        if (other != q && other->device == q->device && other->blocking)
            after->push_back(dependency{other, other->last});
}

uint64_t append(const std::shared_ptr<queue> &q, work &&work, std::vector<dependency> &&after)
{
    queued piece = {std::move(work), ++q->last, std::move(after)};
    take_turns(q, &piece.after);
    q->pieces.push_back(std::move(piece));
    if (current_settings().streams == SIMT_IN_BACKGROUND)
        want(q.get(), q->last);
    return q->last;
}

/* ---- Called without the lock --------------------------------------------------------------- */

hipError_t submit(hipStream_t stream, work &&work)
{
    queue_lock lock(queues().mutex);
    std::shared_ptr<queue> q = find_queue(stream, work.name.c_str());
    if (!q)
        return hipErrorInvalidHandle;
    if (hipError_t stuck = device_status(q->device))
        return stuck;
    if (q->capture)
        return capture_work(q.get(), std::move(work));
    if (!stream && capture_forbids_null(q->device))
        return hipErrorStreamCaptureImplicit;
    append(q, std::move(work));
    return hipSuccess;
}

/* Streams are waited for one after the other, in an order that the settings decide: work on
 * different streams that needs an order and has none goes wrong in one of them. */
void wait_for_device(int device)
{
    queue_lock lock(queues().mutex);
    std::vector<std::shared_ptr<queue>> here;
    for (const std::shared_ptr<queue> &q : queues().all)
        if (q->device == device)
            here.push_back(q);
    settings s = current_settings();
    random_source random = {s.seed};
    if (s.order == SIMT_REVERSE)
        std::reverse(here.begin(), here.end());
    else if (s.order == SIMT_RANDOM)
        for (unsigned i = static_cast<unsigned>(here.size()); i > 1; i--)
            std::swap(here[i - 1], here[random.below(i)]);
    for (const std::shared_ptr<queue> &q : here)
        wait_for(lock, q, q->last);
}

void want_device(int device)
{
    queue_lock lock(queues().mutex);
    for (const std::shared_ptr<queue> &q : queues().all)
        if (q->device == device)
            want(q.get(), q->last);
}

void want_all()
{
    queue_lock lock(queues().mutex);
    for (const std::shared_ptr<queue> &q : queues().all)
        want(q.get(), q->last);
}

} // namespace simt

using namespace simt;

hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags)
{
    if (!stream || flags > hipStreamNonBlocking)
        return fail(hipErrorInvalidValue, "hipStreamCreate: stream is NULL, or flags %#x", flags);
    int device = current_device();
    if (hipError_t stuck = device_status(device))
        return stuck;
    queue_lock lock(queues().mutex);
    *stream = new simt_stream{make_queue(device, flags == hipStreamDefault)};
    live_streams().insert(*stream);
    return hipSuccess;
}

hipError_t hipStreamCreate(hipStream_t *stream)
{
    return hipStreamCreateWithFlags(stream, hipStreamDefault);
}

/* With the lock: the queue of a stream, if the host may wait for it now. */
static hipError_t find_to_wait(hipStream_t stream, const char *call, std::shared_ptr<queue> *found)
{
    *found = find_queue(stream, call);
    if (!*found)
        return hipErrorInvalidHandle;
    return capture_forbids_wait(call, found->get()) ? hipErrorStreamCaptureUnsupported : hipSuccess;
}

hipError_t hipStreamDestroy(hipStream_t stream)
{
    queue_lock lock(queues().mutex);
    if (!stream)
        return fail(hipErrorInvalidHandle, "hipStreamDestroy: the null stream stays");
    std::shared_ptr<queue> q;
    if (hipError_t error = find_to_wait(stream, "hipStreamDestroy", &q))
        return error;
    wait_for(lock, q, q->last);
    close_queue(lock, q);
    live_streams().erase(stream);
    delete stream;
    return hipSuccess;
}

hipError_t hipStreamSynchronize(hipStream_t stream)
{
    queue_lock lock(queues().mutex);
    std::shared_ptr<queue> q;
    if (hipError_t error = find_to_wait(stream, "hipStreamSynchronize", &q))
        return error;
    count(counted.host_waits);
    wait_for(lock, q, q->last);
    return device_status(q->device);
}

/* A query lets the work run, so that a loop of queries ends. */
hipError_t hipStreamQuery(hipStream_t stream)
{
    queue_lock lock(queues().mutex);
    std::shared_ptr<queue> q;
    if (hipError_t error = find_to_wait(stream, "hipStreamQuery", &q))
        return error;
    if (hipError_t stuck = device_status(q->device))
        return stuck;
    if (q->done >= q->last)
        return hipSuccess;
    want(q.get(), q->last);
    return hipErrorNotReady;
}

hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t fn, void *data)
{
    work call;
    call.name = "host function";
    call.run = [fn, data](run_context &) {
        fn(data);
        return hipSuccess;
    };
    call.addresses = {data};
    return submit(stream, std::move(call));
}
