/* Queues: the inside of a stream. A queue has one OS thread, which runs its work in order, each
 * piece when it is wanted and when what it depends on is done. stream.cpp has the queues and the
 * calls on streams, event.cpp those on events, capture.cpp capture, device.cpp whole devices.
 *
 * One lock guards all of it (`queues().mutex`); work itself runs without the lock. */
#ifndef SIMT_STREAM_H
#define SIMT_STREAM_H

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime.h"
#include "simt_launch.h"

namespace simt
{

struct queue;
struct capture; /* graph.h */

/* Piece `number` of the work of a queue, counted from 1. */
struct dependency {
    std::shared_ptr<queue> on;
    uint64_t number;
};

struct queued {
    simt::work work;
    uint64_t number;
    std::vector<dependency> after;
};

struct queue {
    int device;
    bool blocking; /* takes turns with the null stream */
    std::deque<queued> pieces;
    uint64_t last = 0;   /* queued */
    uint64_t wanted = 0; /* may run */
    uint64_t done = 0;
    bool closing = false;
    std::thread thread;

    /* While the stream is captured: */
    std::shared_ptr<simt::capture> capture;
    std::vector<size_t> frontier; /* nodes that its next node comes after */
};

typedef std::unique_lock<std::mutex> queue_lock;

struct queue_table {
    ~queue_table();
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::shared_ptr<queue>> all;         /* in order of creation */
    std::shared_ptr<queue> null_queues[max_devices]; /* made when first used */
};
queue_table &queues();

/* The functions below are called with the lock. */

/* The queue behind a handle; an empty pointer, and an error, if it is none. */
std::shared_ptr<queue> find_queue(hipStream_t stream, const char *call);
/* Let everything up to `number` run, and what it depends on. */
void want(queue *queue, uint64_t number);
/* … and wait for it. */
void wait_for(queue_lock &lock, const std::shared_ptr<queue> &queue, uint64_t number);
/* Append work that comes after other work as well. Returns its number. */
uint64_t append(const std::shared_ptr<queue> &queue, work &&work,
                std::vector<dependency> &&after = {});

/* Without the lock. */
void wait_for_device(int device);
/* Let everything that is queued on the device run. */
void want_device(int device);
/* Let everything that is queued on any device run. */
void want_all();
/* Work that waits for other work gives up when this is so. */
bool process_ends();

/* ---- Capture: capture.cpp ------------------------------------------------------------------ */

/* With the lock: add work to the capture of the queue. */
hipError_t capture_work(queue *queue, work &&work);
/* With the lock: a stream that waits for captured work is captured too, and goes on after it. */
hipError_t capture_join(queue *queue, const std::shared_ptr<capture> &capture,
                        const std::vector<size_t> &nodes);
/* With the lock: may the host not wait for this queue (or any, if NULL) now? Not if it is captured,
 * nor on a thread that captures another. The capture is then spoilt, and the refusal is this
 * thread's last error. */
bool capture_forbids_wait(const char *call, const queue *queue);
/* With the lock: the null stream would take its turn after a captured stream. */
bool capture_forbids_null(int device);
/* Has this thread said that it knows what it does (hipThreadExchangeStreamCaptureMode)? It may ask
 * about work outside of captures at any time. */
bool thread_is_relaxed();
/* Without the lock: the same for calls that concern the whole device or process. */
bool capture_forbids(const char *call);

} // namespace simt

struct simt_stream {
    std::shared_ptr<simt::queue> queue;
};

struct simt_event {
    unsigned flags;
    simt::dependency recorded; /* `on` is empty before the first record */
    std::shared_ptr<double> milliseconds;
    std::shared_ptr<simt::capture> capture; /* if it was recorded in one */
    std::vector<size_t> nodes;
};

#endif
