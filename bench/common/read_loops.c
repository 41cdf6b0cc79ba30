/* Read loops: 32-byte vectors, added up in independent sums, from 1, 2 or 4 pieces at a time, with
 * or without prefetching ahead of the hardware, with or without touching pages. Vectors are the
 * compiler's own, so that the same source serves every architecture; on x86 a second copy is
 * compiled for AVX2 and used where the CPU has it. See read_loops.h.
 *
 * A loop that touches asks for one line of each page of the next 64 KB before it reads 64 KB.
 * Walks through the page tables then overlap, which is most of the time that ordinary pages take;
 * the library does the same. */
#include "read_loops.h"

#include <string.h>

/* Pieces may begin anywhere. */
typedef uint64_t vec __attribute__((vector_size(32), aligned(8), may_alias));

#define STEP 256 /* bytes per stream and round: eight vectors */
#define LINE 64
#define PAGE 4096
#define SUMS 8
#define INLINE static inline __attribute__((always_inline))

INLINE void touch_piece(const read_piece *piece)
{
    const char *at = piece->start, *end = at + piece->bytes;
    while (at < end) {
        __builtin_prefetch(at, 0, 2);
        at += PAGE - (uintptr_t)at % PAGE;
    }
}

/* Touch the pieces from `done` on, up to a batch of bytes after piece `at`; returns where it
 * stopped. */
INLINE size_t touch_ahead(const read_piece *pieces, size_t at, size_t done)
{
    size_t end = at, bytes = 0;
    while (end - at < READ_MORE && bytes < 2 * READ_BATCH_BYTES)
        bytes += pieces[end++].bytes;
    done = done > at ? done : at;
    for (; done < end; done++)
        touch_piece(&pieces[done]);
    return end;
}

/* Where the bytes are that are read `ahead` bytes after those at `at` of a piece. */
INLINE const char *ahead_of(const read_piece *piece, const read_piece *next, size_t at,
                            size_t ahead)
{
    return at + ahead < piece->bytes ? piece->start + at + ahead
                                     : next->start + (at + ahead - piece->bytes);
}

/* The bytes [0, bytes) of `streams` pieces; each stream goes on `streams` pieces later. */
INLINE void read_whole(const read_piece *pieces, int streams, size_t bytes, size_t ahead, vec *sums)
{
    for (size_t at = 0; at < bytes; at += STEP) {
        for (int s = 0; s < streams; s++) {
            const vec *vectors = (const vec *)(const void *)(pieces[s].start + at);
            if (ahead) {
                const char *line = ahead_of(&pieces[s], &pieces[s + streams], at, ahead);
                for (int i = 0; i < STEP; i += LINE)
                    __builtin_prefetch(line + i, 0, 0);
            }
            for (int i = 0; i < SUMS; i++)
                sums[i] += vectors[i];
        }
    }
}

/* What is left of a piece, less than a round. */
INLINE uint64_t read_rest(const read_piece *piece, size_t at)
{
    uint64_t sum = 0, word;
    for (; at < piece->bytes; at += sizeof word) {
        memcpy(&word, piece->start + at, sizeof word);
        sum += word;
    }
    return sum;
}

INLINE uint64_t read_pieces(const read_piece *pieces, size_t count, int streams, size_t ahead,
                            int touch)
{
    vec sums[SUMS] = {{0}};
    uint64_t total = 0;
    size_t touched = 0, at = 0, batch = 0;
    while (at < count) {
        int width = at + (size_t)streams <= count ? streams : 1;
        for (int s = 1; s < width; s++)
            if (pieces[at + (size_t)s].bytes != pieces[at].bytes)
                width = 1;
        if (touch && batch == 0)
            touched = touch_ahead(pieces, at, touched);
        size_t whole = pieces[at].bytes / STEP * STEP;
        if (width == streams)
            read_whole(pieces + at, streams, whole, ahead, sums);
        else
            read_whole(pieces + at, 1, whole, ahead, sums);
        for (int s = 0; s < width; s++)
            total += read_rest(&pieces[at + (size_t)s], whole);
        batch += pieces[at].bytes * (size_t)width;
        batch = batch < READ_BATCH_BYTES ? batch : 0;
        at += (size_t)width;
    }
    for (int i = 0; i < SUMS; i++)
        total += sums[i][0] ^ sums[i][1] ^ sums[i][2] ^ sums[i][3];
    return total;
}

/* Far enough ahead to hide a memory access behind the reads in between. */
#define NEAR 1024
#define FAR 4096

/* What each loop does: a name for its function, pieces at a time, bytes ahead, whether it
 * touches. */
#define ALL_LOOPS(LOOP, suffix, attribute)                                                         \
    LOOP(one, "1 stream", 1, 0, 0, suffix, attribute)                                              \
    LOOP(two, "2 streams", 2, 0, 0, suffix, attribute)                                             \
    LOOP(four, "4 streams", 4, 0, 0, suffix, attribute)                                            \
    LOOP(one_near, "1 stream, prefetch 1 KB", 1, NEAR, 0, suffix, attribute)                       \
    LOOP(one_far, "1 stream, prefetch 4 KB", 1, FAR, 0, suffix, attribute)                         \
    LOOP(four_near, "4 streams, prefetch 1 KB", 4, NEAR, 0, suffix, attribute)                     \
    LOOP(one_touch, "1 stream, pages touched", 1, 0, 1, suffix, attribute)                         \
    LOOP(one_far_touch, "1 stream, prefetch 4 KB, pages touched", 1, FAR, 1, suffix, attribute)    \
    LOOP(four_near_touch, "4 streams, prefetch 1 KB, pages touched", 4, NEAR, 1, suffix, attribute)

#define DEFINE_LOOP(name, text, streams, ahead, touch, suffix, attribute)                          \
    attribute static uint64_t name##_##suffix(const read_piece *pieces, size_t count)              \
    {                                                                                              \
        return read_pieces(pieces, count, streams, ahead, touch);                                  \
    }
#define LIST_LOOP(name, text, streams, ahead, touch, suffix, attribute) {text, name##_##suffix},

ALL_LOOPS(DEFINE_LOOP, plain, )
static const read_loop loops_plain[] = {ALL_LOOPS(LIST_LOOP, plain, )};
#if defined(__x86_64__)
ALL_LOOPS(DEFINE_LOOP, avx2, __attribute__((target("avx2"))))
static const read_loop loops_avx2[] = {ALL_LOOPS(LIST_LOOP, avx2, )};
#endif

const read_loop *read_loops(int *count)
{
    *count = (int)(sizeof loops_plain / sizeof loops_plain[0]);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return loops_avx2;
#endif
    return loops_plain;
}
