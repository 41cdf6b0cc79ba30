/* The blocks of a launch: in which order, on which OS thread. launch.cpp calls run_grid(). */
#include <atomic>
#include <mutex>
#include <thread>

#include "launch.h"
#include "settings.h"

namespace simt
{

/* ---- A pool of runners: their stacks are worth keeping ------------------------------------- */

static std::mutex pool_mutex;
static std::vector<std::unique_ptr<block_runner>> &pool()
{
    static std::vector<std::unique_ptr<block_runner>> idle;
    return idle;
}

static std::unique_ptr<block_runner> take_runner()
{
    std::lock_guard<std::mutex> lock(pool_mutex);
    if (pool().empty())
        return std::unique_ptr<block_runner>(new block_runner);
    std::unique_ptr<block_runner> runner = std::move(pool().back());
    pool().pop_back();
    return runner;
}

static void give_runner(std::unique_ptr<block_runner> runner)
{
    std::lock_guard<std::mutex> lock(pool_mutex);
    pool().push_back(std::move(runner));
}

/* ---- Blocks -------------------------------------------------------------------------------- */

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The i-th block to run is block (factor · i + offset) mod count: a permutation, however large. */
struct block_order {
    uint64_t count, factor, offset;

    uint64_t operator[](uint64_t i) const
    {
        return static_cast<uint64_t>((static_cast<unsigned __int128>(factor) * i + offset) % count);
    }
};

static block_order make_order(const kernel_launch &launch, uint64_t count)
{
    block_order order = {count, 1, 0};
    if (launch.order == SIMT_REVERSE) {
        order.factor = count - 1;
        order.offset = count - 1;
    } else if (launch.order == SIMT_RANDOM) {
        random_source random = {launch.seed};
        order.offset = random.next() % count;
        do {
            order.factor = random.next() % count;
        } while (count > 1 && common_divisor(order.factor, count) != 1);
    }
    return order;
}

struct grid_run {
    const kernel_launch *launch;
    block_order order;
    unsigned workers;
    std::atomic<bool> failed;
    std::mutex mutex;
    std::string why;
};

static void run_share(grid_run *run, block_runner *runner, unsigned worker)
{
    for (uint64_t i = worker; i < run->order.count && !run->failed; i += run->workers) {
        if (!runner->run(*run->launch, run->order[i])) {
            std::lock_guard<std::mutex> lock(run->mutex);
            if (!run->failed)
                run->why = runner->error;
            run->failed = true;
        }
        count(counted.blocks);
    }
}

bool run_grid(const kernel_launch &launch, unsigned workers, std::string *why)
{
    uint64_t count = static_cast<uint64_t>(launch.grid.x) * launch.grid.y * launch.grid.z;
    grid_run run;
    run.launch = &launch;
    run.order = make_order(launch, count);
    run.workers = workers < count ? workers : static_cast<unsigned>(count);
    run.failed = false;
    /* The workers take no lock: it would put an order between blocks that have none, for TSan. */
    std::vector<std::unique_ptr<block_runner>> runners;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < run.workers; i++)
        runners.push_back(take_runner());
    for (unsigned i = 1; i < run.workers; i++)
        threads.emplace_back(run_share, &run, runners[i].get(), i);
    run_share(&run, runners[0].get(), 0);
    for (std::thread &thread : threads)
        thread.join();
    for (std::unique_ptr<block_runner> &runner : runners)
        give_runner(std::move(runner));
    *why = run.why;
    return !run.failed;
}

} // namespace simt
