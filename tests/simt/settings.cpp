/* Settings, faults and counts: see simt_control.h. */
#include "settings.h"

#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>

#include "runtime.h"
#include "simt_peer.h"

namespace simt
{

counts counted;
fault malloc_fault, query_fault, count_fault, none_fault, launch_fault, kernel_fault;
std::atomic<bool> peers_lose_stores;

/* A typing mistake in a command that should repeat a failure must not pass for a repetition. */
[[noreturn]] static void refuse(const char *name, const char *value, const char *expected)
{
    fprintf(stderr, "simt: %s=%s: expected %s\n", name, value, expected);
    exit(2);
}

static uint64_t number(const char *name, uint64_t least, uint64_t most, uint64_t otherwise)
{
    const char *text = getenv(name);
    if (!text)
        return otherwise;
    char *end = nullptr;
    uint64_t value = strtoull(text, &end, 0);
    if (end == text || *end || value < least || value > most)
        refuse(name, text, (std::to_string(least) + " to " + std::to_string(most)).c_str());
    return value;
}

/* The index of the variable's value in a list of `count` words; 0 if it is not set. */
static unsigned choice(const char *name, const char *const *words, unsigned count)
{
    const char *text = getenv(name);
    std::string expected;
    for (unsigned i = 0; i < count; i++) {
        if (!text || strcmp(text, words[i]) == 0)
            return i;
        expected += std::string(i ? " or " : "") + words[i];
    }
    refuse(name, text, expected.c_str());
}

static const char *const order_words[] = {"forward", "reverse", "random"};
static const char *const stream_words[] = {"sync", "background"};
static const char *const wave_words[] = {"32", "64"};
static const char *const peer_words[] = {"all", "none", "no_ipc", "lossy", "pairs"};
static const char *const narrow_words[] = {"none", "ocp", "fnuz"};

static settings from_environment()
{
    settings s;
    s.order = static_cast<simt_order>(choice("TA_SIMT_ORDER", order_words, 3));
    s.seed = number("TA_SIMT_SEED", 0, UINT64_MAX, 1);
    s.wave = choice("TA_SIMT_WAVE", wave_words, 2) ? 64 : 32;
    s.streams = static_cast<simt_streams>(choice("TA_SIMT_STREAMS", stream_words, 2));
    s.workers = static_cast<unsigned>(number("TA_SIMT_WORKERS", 1, 64, 1));
    s.guard = number("TA_SIMT_GUARD", 0, 1, 0) == 1;
    s.peers = static_cast<simt_peers>(choice("TA_SIMT_PEERS", peer_words, 5));
    s.narrow = static_cast<simt_narrow>(choice("TA_SIMT_NARROW", narrow_words, 3));
    s.device.devices = static_cast<int>(number("TA_SIMT_DEVICES", 1, max_devices, 8));
    s.device.compute_units = 16;
    s.device.shared_bytes = static_cast<size_t>(number("TA_SIMT_SHARED", 48, 128, 64)) << 10;
    s.device.default_shared_bytes = 49152;
    s.device.shared_bytes_per_unit = 131072;
    s.device.memory_bytes = static_cast<size_t>(4) << 30;
    s.device.cache_bytes = static_cast<size_t>(8) << 20;
    const char *arch = getenv("TA_SIMT_ARCH");
    snprintf(s.device.arch, sizeof s.device.arch, "%s", arch ? arch : "simt");
    return s;
}

/* All access under one lock; settings are read once for each launch. */
static std::mutex settings_mutex;

static settings first_settings()
{
    settings s = from_environment();
    peers_lose_stores.store(s.peers == SIMT_PEERS_LOSSY);
    return s;
}

static settings &stored()
{
    static settings s = first_settings();
    return s;
}

settings current_settings()
{
    std::lock_guard<std::mutex> lock(settings_mutex);
    return stored();
}

} // namespace simt

using namespace simt;

void simt_set_order(simt_order order, uint64_t seed)
{
    std::lock_guard<std::mutex> lock(settings_mutex);
    stored().order = order;
    stored().seed = seed;
}

void simt_set_wave(int wave)
{
    std::lock_guard<std::mutex> lock(settings_mutex);
    stored().wave = wave == 64 ? 64 : 32;
}

void simt_set_streams(simt_streams when)
{
    std::lock_guard<std::mutex> lock(settings_mutex);
    stored().streams = when;
}

void simt_set_workers(int count)
{
    std::lock_guard<std::mutex> lock(settings_mutex);
    stored().workers = count < 1 ? 1 : count > 64 ? 64 : static_cast<unsigned>(count);
}

void simt_set_guard(int on)
{
    {
        std::lock_guard<std::mutex> lock(settings_mutex);
        stored().guard = on != 0;
    }
    memory_apply_guard(on != 0);
}

void simt_set_peers(simt_peers peers)
{
    std::lock_guard<std::mutex> lock(settings_mutex);
    stored().peers = peers;
    peers_lose_stores.store(peers == SIMT_PEERS_LOSSY);
}

void simt_set_narrow(simt_narrow narrow)
{
    std::lock_guard<std::mutex> lock(settings_mutex);
    stored().narrow = narrow;
}

simt_device_config simt_get_device_config(void)
{
    return current_settings().device;
}

void simt_set_device_config(const simt_device_config *config)
{
    std::lock_guard<std::mutex> lock(settings_mutex);
    stored().device = *config;
}

const char *simt_settings(void)
{
    static thread_local std::string text;
    settings s = current_settings();
    text = std::string("TA_SIMT_ORDER=") + order_words[s.order] +
           " TA_SIMT_SEED=" + std::to_string(s.seed) + " TA_SIMT_WAVE=" + std::to_string(s.wave) +
           " TA_SIMT_STREAMS=" + stream_words[s.streams] +
           " TA_SIMT_WORKERS=" + std::to_string(s.workers) +
           " TA_SIMT_NARROW=" + narrow_words[s.narrow];
    return text.c_str();
}

void simt_reset(void)
{
    settings fresh = from_environment();
    {
        std::lock_guard<std::mutex> lock(settings_mutex);
        stored() = fresh;
        peers_lose_stores.store(fresh.peers == SIMT_PEERS_LOSSY);
    }
    memory_apply_guard(fresh.guard);
    malloc_fault.remaining = query_fault.remaining = 0;
    count_fault.remaining = none_fault.remaining = 0;
    launch_fault.remaining = kernel_fault.remaining = 0;
    counted.launches = counted.graph_launches = counted.kernels = counted.blocks = 0;
    counted.allocations = counted.host_waits = counted.copied_bytes = 0;
    clear_errors();
}

void simt_fail_malloc(int nth)
{
    malloc_fault.remaining = nth;
}

void simt_fail_query(int nth)
{
    query_fault.remaining = nth;
}

void simt_fail_count(int nth)
{
    count_fault.remaining = nth > 0 ? nth : 0;
    none_fault.remaining = nth < 0 ? -nth : 0;
}

void simt_fail_launch(int nth)
{
    launch_fault.remaining = nth;
}

void simt_fail_kernel(int nth)
{
    kernel_fault.remaining = nth;
}

simt_counters simt_get_counters(void)
{
    simt_counters c = {counted.launches,    counted.graph_launches, counted.kernels,
                       counted.blocks,      counted.allocations,    counted.host_waits,
                       counted.copied_bytes};
    return c;
}
