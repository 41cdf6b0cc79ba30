/* Helpers of the tests of the executor's collectives. Ranks are threads, each on a device of its
 * own; a rank that finds something wrong returns it in words. */
#ifndef SIMT_CCL_TEST_H
#define SIMT_CCL_TEST_H

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "simt_ccl.h"
#include "simt_test.h"

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return std::string("line ") + std::to_string(__LINE__) + ": " #condition;              \
    } while (0)

/* Run `rank_fn(rank)` for every rank on a thread of its own. */
static inline void on_ranks(int ranks, const std::function<std::string(int)> &rank_fn)
{
    std::vector<std::thread> threads;
    std::vector<std::string> said(static_cast<size_t>(ranks));
    for (int r = 0; r < ranks; r++)
        threads.emplace_back([&, r] {
            (void)hipSetDevice(r);
            said[static_cast<size_t>(r)] = rank_fn(r);
        });
    for (std::thread &t : threads)
        t.join();
    for (int r = 0; r < ranks; r++)
        if (!said[static_cast<size_t>(r)].empty()) {
            std::string text = "rank " + std::to_string(r) + " of " + std::to_string(ranks) + ": " +
                               said[static_cast<size_t>(r)] + " [" + simt_settings() + "]";
            TEST_FAIL_MESSAGE(text.c_str());
        }
}

static inline ncclResult_t settle(ncclComm_t comm, ncclResult_t result)
{
    while (result == ncclInProgress) {
        if (ncclCommGetAsyncError(comm, &result) != ncclSuccess)
            return ncclInternalError;
        std::this_thread::yield();
    }
    return result;
}

/* A rank's communicator, stream, and device memory of `count` floats for input and output. */
struct endpoint {
    ncclComm_t comm = nullptr;
    hipStream_t stream = nullptr;
    float *in = nullptr, *out = nullptr;
    size_t count;
    bool ok;

    endpoint(const ncclUniqueId &id, int ranks, int rank, size_t count_, bool blocking)
        : count(count_)
    {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = blocking;
        ok = hipStreamCreateWithFlags(&stream, hipStreamNonBlocking) == hipSuccess &&
             hipMalloc(&in, count * sizeof(float)) == hipSuccess &&
             hipMalloc(&out, count * sizeof(float)) == hipSuccess;
        ncclResult_t result = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
        ok = ok && settle(comm, result) == ncclSuccess;
    }
    ~endpoint()
    {
        if (comm)
            (void)ncclCommAbort(comm);
        (void)hipStreamDestroy(stream);
        (void)hipFree(in);
        (void)hipFree(out);
    }
    endpoint(const endpoint &) = delete;
    endpoint &operator=(const endpoint &) = delete;

    void fill(const std::function<float(size_t)> &value)
    {
        std::vector<float> values(count);
        for (size_t i = 0; i < count; i++)
            values[i] = value(i);
        (void)hipMemcpy(in, values.data(), count * sizeof(float), hipMemcpyHostToDevice);
        (void)hipMemset(out, 0xff, count * sizeof(float));
        (void)hipStreamSynchronize(nullptr);
    }
    std::vector<float> read()
    {
        std::vector<float> values(count);
        (void)hipMemcpy(values.data(), out, count * sizeof(float), hipMemcpyDeviceToHost);
        return values;
    }
    /* Leave in the way that a healthy program does. */
    bool finish()
    {
        bool done = settle(comm, ncclCommFinalize(comm)) == ncclSuccess &&
                    ncclCommDestroy(comm) == ncclSuccess;
        comm = nullptr;
        return done;
    }
};

static inline ncclUniqueId new_id()
{
    ncclUniqueId id;
    (void)ncclGetUniqueId(&id);
    return id;
}

static inline bool ends_soon(hipStream_t stream)
{
    for (int i = 0; i < 40; i++) {
        if (hipStreamQuery(stream) == hipSuccess)
            return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

#endif
