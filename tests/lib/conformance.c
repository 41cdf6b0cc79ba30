/* The conformance suite: its order, its buffers and patterns. See conformance.h. */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define GUARD_BYTES 64
#define GUARD 0xee

static ta_status host_alloc(void *context, size_t bytes, void **memory)
{
    (void)context;
    *memory = malloc(bytes);
    return *memory ? TA_OK : ta_fail(TA_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
}

static void host_free(void *context, void *memory)
{
    (void)context;
    free(memory);
}

static ta_status host_copy(void *context, void *to, const void *from, size_t bytes, void *stream)
{
    (void)context;
    (void)stream;
    memcpy(to, from, bytes);
    return TA_OK;
}

static ta_status host_finish(void *context, void *stream)
{
    (void)context;
    (void)stream;
    return TA_OK;
}

const conformance_memory conformance_host = {
    .alloc = host_alloc,
    .free = host_free,
    .write = host_copy,
    .read = host_copy,
    .finish = host_finish,
    .threads = true,
};

ta_status area_make(conformance *c, size_t bytes, area *made)
{
    *made = (area){NULL, malloc(bytes + GUARD_BYTES), bytes};
    if (!made->host)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
    memset(made->host, GUARD, bytes + GUARD_BYTES);
    TA_TRY(c->memory->alloc(c->memory->context, bytes + GUARD_BYTES, &made->memory));
    return area_write(c, made);
}

void area_free(conformance *c, area *a)
{
    c->memory->free(c->memory->context, a->memory);
    free(a->host);
}

ta_status area_write(conformance *c, area *a)
{
    return c->memory->write(c->memory->context, a->memory, a->host, a->bytes + GUARD_BYTES,
                            c->stream);
}

ta_status area_read(conformance *c, area *a)
{
    memset(a->host, 0, a->bytes + GUARD_BYTES);
    TA_TRY(
        c->memory->read(c->memory->context, a->host, a->memory, a->bytes + GUARD_BYTES, c->stream));
    for (int i = 0; i < GUARD_BYTES; ++i)
        CONFORM(c, a->host[a->bytes + (size_t)i] == GUARD);
    return TA_OK;
}

static unsigned char pattern(int rank, size_t i, int round)
{
    return (unsigned char)((unsigned)rank * 37u + i * 11u + (i >> 8) * 3u + (unsigned)round * 101u);
}

void pattern_fill(unsigned char *data, size_t bytes, int rank, int round)
{
    for (size_t i = 0; i < bytes; ++i)
        data[i] = pattern(rank, i, round);
}

bool pattern_is(const unsigned char *data, size_t bytes, int rank, int round)
{
    for (size_t i = 0; i < bytes; ++i)
        if (data[i] != pattern(rank, i, round))
            return false;
    return true;
}

int64_t conformance_reduced(ta_reduction reduction, int size, size_t i,
                            int64_t (*input)(int rank, size_t i))
{
    int64_t result = reduction == TA_REDUCE_MAX ? INT64_MIN : 0;
    for (int rank = 0; rank < size; ++rank) {
        int64_t value = input(rank, i);
        if (reduction == TA_REDUCE_SUM)
            result += value;
        else if (value > result)
            result = value;
    }
    return result;
}

ta_status conformance_run(ta_group *group, const conformance_memory *memory, size_t most_bytes)
{
    static const size_t sizes[] = {0, 1, 3, 8, 100, 4096, 65540, 1 << 20, 3145732};
    conformance c = {memory, group, memory->streams[0], ""};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && sizes[i] <= most_bytes; ++i) {
        TA_TRY(conformance_moves(&c, sizes[i]));
        TA_TRY(conformance_reductions(&c, sizes[i]));
        TA_TRY(conformance_collectives(&c, sizes[i]));
    }
    TA_TRY(conformance_rounds_once(&c));
    TA_TRY(conformance_reduction_values(&c));
    TA_TRY(conformance_barrier(&c));
    TA_TRY(conformance_split(&c, 1000));
    TA_TRY(conformance_overlap(&c, most_bytes < 65540 ? most_bytes : 65540));
    TA_TRY(conformance_shared(&c));
    return ta_group_barrier(group, memory->streams[0]);
}

ta_status conformance_sizes(const conformance_size *sizes, size_t count,
                            ta_status (*run_on)(int ranks, size_t most_bytes))
{
    for (size_t i = 0; i < count; ++i) {
        ta_status status = run_on(sizes[i].ranks, sizes[i].most_bytes);
        if (status != TA_OK) {
            char sentence[1024];
            snprintf(sentence, sizeof sentence, "%s", ta_last_error());
            return ta_fail(status, "on %d ranks: %s", sizes[i].ranks, sentence);
        }
    }
    return TA_OK;
}
