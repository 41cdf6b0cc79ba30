/* The kernels of a direct exchange between GPUs (hip/exchange/peers.hip) by themselves: four
 * devices that come late by turns, counts that wrap, one shot and two, output on all and on one; a
 * rank with a fault in some steps, one that does not come to a step, and one that aborts in place
 * of it. Results are exact, so a partial of another step shows.
 *
 * The build makes this program once with the kernels as they are, and once without each rule of the
 * protocol: without.sh removes its line. Then the program is told, by the argument "broken", and
 * passes if something goes wrong, for which it tries several times: what goes wrong, and when, is
 * up to the order in which the machine runs the threads. */
#include <atomic>
#include <chrono>
#include <stdio.h>
#include <string.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "vendor.h"

#include "shape.h"
#include "simt_control.h"
#include "simt_sanitizer.h"

/* TSan is slow, and sees races that do not happen. */
static const int steps = SIMT_TSAN ? 8 : 24;

struct scenario {
    int shots;
    ta_placement placement;
    uint32_t start; /* of the count */
    int late;       /* the rank that comes late first; the others take turns after it */
    bool faults;    /* the last rank has a fault in every third step */
    bool missing;   /* it does not come to a step until the others have given it up */
    bool aborts;    /* it tells them, in place of that step, and leaves */
};

static const int missed = 2;
/* Of a wait for another rank, in ns: long, unless one will not come, or may not. */
static uint64_t patience = 100000000000u;
static const uint64_t broken_patience = SIMT_TSAN ? 100000000000u : 10000000000u,
                      short_patience = 3000000000u;
static const int broken_tries = 20;

static std::atomic<int> wrong, given_up, waited;
static std::atomic<int> last_at; /* the step in which the last rank is */
static std::atomic<bool> stuck;

static float value_of(int step, int rank, int record, int column)
{
    return static_cast<float>((step * 37 + rank * 131 + record * 17 + column * 5) % 997);
}

static bool right(hipError_t error, const char *what)
{
    if (error == hipSuccess)
        return true;
    if (!stuck.exchange(true))
        printf("%s: %s\n", what, hipGetErrorString(error));
    wrong++;
    return false;
}

static ta_peers_params params_of(const scenario &s, const device_side &d, int rank)
{
    ta_peers_params p = params_of(d, s.missing ? short_patience : patience);
    p.finish.heads = s.placement == TA_PLACE_ALL || rank == 0 ? heads : 0;
    p.rank = rank;
    p.placement = s.placement;
    p.shots = s.shots;
    return p;
}

static void make(device_side *d, int rank)
{
    (void)hipSetDevice(rank);
    right(hipMalloc(&d->slab, slab_bytes()), "hipMalloc");
    right(hipMalloc(&d->control, sizeof *d->control), "hipMalloc");
    right(hipMalloc(&d->records, partial_bytes), "hipMalloc");
    right(hipMalloc(&d->out, records * v_dim * sizeof(float)), "hipMalloc");
    right(hipHostMalloc(&d->report, sizeof *d->report, hipHostMallocDefault), "hipHostMalloc");
    memset(d->report, 0, sizeof *d->report);
}

/* As after so many exchanges. */
static void start(const std::vector<device_side> &all, int rank, uint32_t epoch)
{
    const device_side &d = all[static_cast<size_t>(rank)];
    ta_peer_control control;
    std::vector<ta_peer_line> lines(static_cast<size_t>(ta_peer_lines(ranks, blocks)));
    memset(&control, 0, sizeof control);
    memset(lines.data(), 0, lines.size() * sizeof lines[0]);
    for (int i = 0; i < ranks; i++)
        control.slabs[i] = all[static_cast<size_t>(i)].slab, control.names[i] = i;
    for (int i = 0; i < blocks; i++)
        control.blocks[i].epoch = epoch;
    for (ta_peer_line &line : lines)
        line.epoch = epoch;
    (void)hipSetDevice(rank);
    right(hipMemset(d.slab, 0xff, slab_bytes()), "hipMemset");
    right(hipMemcpy(d.slab, lines.data(), lines.size() * sizeof lines[0], hipMemcpyHostToDevice),
          "hipMemcpy");
    right(hipMemcpy(d.control, &control, sizeof control, hipMemcpyHostToDevice), "hipMemcpy");
}

static bool has_fault(const scenario &s, int step)
{
    return s.faults && step % 3 == 1;
}

/* Nothing but what is expected is reported, and that is. */
static void check_report(const scenario &s, const device_side &d, int rank, int step)
{
    ta_fault expected = ta_fault_of(has_fault(s, step) ? TA_ERR_INVALID : TA_OK, last);
    if (s.missing && step >= missed && rank != last)
        expected = ta_fault_lost(s.aborts ? TA_ERR_ABORTED : TA_ERR_TIMEOUT, last);
    if (d.report->status != expected.status ||
        (expected.status != TA_OK && d.report->rank != expected.rank)) {
        if (!stuck.exchange(true))
            printf("rank %d, step %d: reports status %d of rank %d\n", rank, step, d.report->status,
                   d.report->rank);
        wrong++;
    }
    memset(d.report, 0, sizeof *d.report);
}

/* The results of this step, or of an earlier one that nothing was written after. */
static void check_results(const scenario &s, const device_side &d, int rank, int step)
{
    std::vector<float> out(records * v_dim);
    right(hipMemcpy(out.data(), d.out, out.size() * sizeof(float), hipMemcpyDeviceToHost),
          "hipMemcpy");
    if (s.placement == TA_PLACE_ROOT && rank != 0)
        return;
    for (int record = 0; record < records; record++)
        for (int c = 0; c < v_dim; c++) {
            float sum = 0;
            for (int r = 0; r < ranks; r++)
                sum += value_of(step, r, record, c);
            float got =
                out[static_cast<size_t>(((record % rows) * heads + record / rows) * v_dim + c)];
            if (!(got == sum / ranks) && wrong++ == 0)
                printf("rank %d, step %d, record %d, column %d: %g in place of %g\n", rank, step,
                       record, c, static_cast<double>(got), static_cast<double>(sum / ranks));
        }
}

/* After a rank was missing the others have no results any more, also when it comes. It hears of it
 * from them, or finds that they do not merge for it. */
static void check(const scenario &s, const device_side &d, int rank, int step)
{
    if (s.missing && rank == last && step >= missed)
        return;
    check_report(s, d, rank, step);
    check_results(s, d, rank,
                  s.missing && step > missed - 1 ? missed - 1 : step - has_fault(s, step));
}

/* What the last rank does in place of a step, while the others wait for it. */
static void abort_step(const ta_peers_params &p)
{
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    int32_t word = ta_fault_lost_word(ta_fault_lost(TA_ERR_ABORTED, last));
    right(static_cast<hipError_t>(ta_launch_peers_lost(&p, word, nullptr).error), "telling");
    right(hipDeviceSynchronize(), "telling");
}

/* The last rank comes when the others have given it up; they go on when it is in the step after
 * that one, and has signalled there if it does so at all. */
static void take_turns(const scenario &s, int rank, int step)
{
    if (!s.missing || s.aborts)
        return;
    if (rank == last)
        last_at = step;
    while (rank == last && step == missed && given_up < last && !stuck)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (rank == last || step != missed + 1)
        return;
    while (last_at < step && !stuck)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

/* One rank's steps. Ranks wait for each other on their devices alone. */
static void run_rank(const scenario &s, const device_side &d, int rank)
{
    std::vector<float> own(records * record_floats + TA_FAULT_FLOATS);
    ta_peers_params p = params_of(s, d, rank);
    (void)hipSetDevice(rank);
    for (int step = 0; step < steps && !stuck; step++) {
        for (int record = 0; record < records; record++)
            for (int c = 0; c < record_floats; c++)
                own[static_cast<size_t>(record * record_floats + c)] =
                    c < v_dim ? value_of(step, rank, record, c) : static_cast<float>(c - v_dim);
        ta_fault fault =
            ta_fault_of(has_fault(s, step) && rank == last ? TA_ERR_INVALID : TA_OK, rank);
        take_turns(s, rank, step);
        if (s.aborts && rank == last && step == missed)
            return abort_step(p);
        memcpy(&own[records * record_floats], &fault, sizeof fault);
        if (step % 6 == 0 && (step / 6 + s.late) % ranks == rank)
            std::this_thread::sleep_for(std::chrono::milliseconds(40));
        if (!right(
                hipMemcpy(d.records, own.data(), own.size() * sizeof(float), hipMemcpyHostToDevice),
                "hipMemcpy") ||
            !right(static_cast<hipError_t>(ta_launch_peers_finish(&p, nullptr).error), "launch") ||
            !right(hipDeviceSynchronize(), "the kernel"))
            return;
        check(s, d, rank, step);
        given_up += s.missing && step == missed && rank != last;
    }
}

static void run(const scenario &s)
{
    std::vector<device_side> all(ranks);
    std::vector<std::thread> threads;
    waited = last_at = 0;
    for (int rank = 0; rank < ranks; rank++)
        make(&all[static_cast<size_t>(rank)], rank);
    for (int rank = 0; rank < ranks; rank++)
        start(all, rank, s.start);
    for (int rank = 0; rank < ranks; rank++)
        threads.emplace_back(run_rank, std::cref(s), std::cref(all[static_cast<size_t>(rank)]),
                             rank);
    for (std::thread &thread : threads)
        thread.join();
    for (int rank = 0; rank < ranks; rank++) {
        device_side &d = all[static_cast<size_t>(rank)];
        ta_peers_params p = params_of(s, d, rank);
        (void)hipSetDevice(rank);
        (void)hipDeviceReset();
        if (s.missing && *ta_peer_lost_word(d.slab, &p, rank) == 0) {
            printf("nobody said to rank %d that one is lost\n", rank);
            wrong++;
        }
        (void)hipFree(d.slab), (void)hipFree(d.control), (void)hipFree(d.records);
        (void)hipFree(d.out), (void)hipHostFree(d.report);
    }
}

/* A rank that is waited for without end is an error too, of which this is the end. */
static void watch(bool broken)
{
    while (waited++ < (broken ? 30 : 300))
        std::this_thread::sleep_for(std::chrono::seconds(SIMT_TSAN ? 20 : 1));
    printf("ranks wait without end\n");
    fflush(stdout);
    _exit(!broken);
}

static void run_all()
{
    for (int i = 0; i < 16 && !wrong; i++) {
        scenario s = {1 + (i & 1),
                      i & 2 ? TA_PLACE_ROOT : TA_PLACE_ALL,
                      i & 4 ? 0xfffffffcu : 0u,
                      i & 8 ? 2 : 0,
                      i >= 12,
                      false,
                      false};
        run(s);
        if (wrong)
            printf("%d shots, placement %d, from %u on, rank %d late: %d wrong\n", s.shots,
                   static_cast<int>(s.placement), s.start, s.late, wrong.load());
    }
    /* For TSan it is a race that those who have given a rank up write their fault again, while it
     * may read the last: it is a fault whichever half it gets. */
    for (int i = 0; i < 4 && !wrong && !SIMT_TSAN; i++) {
        given_up = 0;
        run({1 + i / 2, TA_PLACE_ALL, 0, 0, false, true, i % 2 == 1});
        if (wrong)
            printf("%d shots, a rank %s: %d wrong\n", 1 + i / 2, i % 2 ? "that aborts" : "missing",
                   wrong.load());
    }
}

int main(int argc, char **argv)
{
    bool broken = argc > 1 && strcmp(argv[1], "broken") == 0;
    patience = broken ? broken_patience : patience;
    std::thread(watch, broken).detach();
    for (int tries = 0; tries < (broken ? broken_tries : 1) && !wrong; tries++)
        run_all();
    printf("%s\n", wrong ? "something is wrong" : "all is right");
    return (wrong != 0) != broken;
}
