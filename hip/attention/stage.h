/* A stage: rows of Dim 16-bit elements in shared memory, which a block brings there while it
 * computes. The kernels for matrix cores are made of it; wave.h is what a wave does with one.
 *
 * Chunk c (16 bytes) of row r lies at place c ^ r % 8 of its row: so the same chunk of 8 rows,
 * which a load of operands takes at once, is in 8 different groups of banks, without padding. */
#ifndef TA_HIP_ATTENTION_STAGE_H
#define TA_HIP_ATTENTION_STAGE_H

#include "number.h"
#include "weights.h"

template <int Dim> struct ta_stage {
    static const int row_bytes = Dim * 2;

    TA_DEVICE int32_t at(int32_t row, int32_t chunk)
    {
        return row * row_bytes + ((chunk ^ (row % 8)) * 16);
    }

    /* The same for chunk 2 · k + low, in two steps: what a lane keeps, and what each k adds to it.
     * Only what k has below 4 meets the row's bits. */
    TA_DEVICE int32_t at_first(int32_t row, int32_t low)
    {
        return row * row_bytes + ((low ^ (row % 8)) * 16);
    }

    TA_DEVICE int32_t at_pair(int32_t first, int k)
    {
        return (first ^ (k % 4 * 32)) + k / 4 * 128;
    }
};

/* Rows on their way to a stage: each thread brings chunks of some rows. */
template <int Dim, int Rows, int Threads> struct ta_stage_copy {
    static const int row_threads = Threads >= 16 * Rows && Dim >= 128 ? 16 : 8; /* bring a row */
    static const int rows_at_once = Threads / row_threads;
    static const int rounds = Rows > rows_at_once ? Rows / rows_at_once : 1;
    static const int wide = Dim / 8 / row_threads;
    ta_copy16 chunks[rounds][wide];

    /* The row of the stage that this thread brings in a round, if it brings one. */
    TA_DEVICE int32_t row(int round)
    {
        return static_cast<int32_t>(threadIdx.x) / row_threads + round * rows_at_once;
    }

    TA_DEVICE bool has_row(int round)
    {
        return Rows % rows_at_once == 0 || row(round) < Rows;
    }

    /* Where its chunk i of that row lies. Rows of all rounds have the same place among 8, and so
     * have chunks of all i. */
    TA_DEVICE int32_t at(int round, int i)
    {
        static_assert(rows_at_once % 8 == 0, "or the rounds differ");
        int32_t chunk = static_cast<int32_t>(threadIdx.x) % row_threads;
        return ta_stage<Dim>::at(row(0), chunk) + round * rows_at_once * ta_stage<Dim>::row_bytes +
               i * row_threads * 16;
    }

    /* This thread's first chunk of the row at `from`. */
    TA_DEVICE const char *of_thread(const void *from)
    {
        return static_cast<const char *>(from) +
               static_cast<int32_t>(threadIdx.x) % row_threads * 16;
    }

    /* `find(round, exists)` is how many bytes behind `own`, an of_thread(), the row of a round is;
     * zeros come if it does not exist. Zeros also follow the `dim` elements that a row has. */
    template <class Find>
    __device__ __forceinline__ void start(const char *own, int32_t dim, char *to, Find find)
    {
        int32_t first = static_cast<int32_t>(threadIdx.x) % row_threads;
#pragma unroll
        for (int i = 0; i < rounds; i++) {
            if (!has_row(i))
                continue;
            bool exists;
            const char *row = own + find(i, exists);
#pragma unroll
            for (int j = 0; j < wide; j++)
                ta_copy_start(chunks[i][j], to + at(i, j), row + j * row_threads * 16,
                              exists && first * 8 < dim - j * row_threads * 8);
        }
    }

    /* After this and a barrier all threads may read the rows. */
    __device__ __forceinline__ void finish(char *to) const
    {
        ta_copies_wait();
#pragma unroll
        for (int i = 0; i < rounds * wide; i++)
            if (has_row(i / wide))
                ta_copy_finish(chunks[i / wide][i % wide], to + at(i / wide, i % wide));
    }

    /* Is one of the elements that this thread brought infinite or NaN? */
    template <class Type> TA_DEVICE bool not_finite(const char *stage)
    {
        uint32_t found = 0;
        for_each_chunk(stage, [&](const char *chunk) {
            ta_vec16 x = ta_load16(chunk);
#pragma unroll
            for (int w = 0; w < 4; w++)
                found |= ta_not_finite(Type(), x.word[w]);
        });
        return found != 0;
    }

    /* These become 0. */
    template <class Type> TA_DEVICE void hide_not_finite(char *stage)
    {
        change(stage, [](uint32_t word) {
            return word & ~((ta_not_finite(Type(), word) >> 15) * 0xffffu);
        });
    }

    /* All that this thread brought, with the other sign. */
    TA_DEVICE void change_signs(char *stage)
    {
        change(stage, [](uint32_t word) { return word ^ 0x80008000u; });
    }

    template <class Change> TA_DEVICE void change(char *stage, Change to)
    {
        for_each_chunk(stage, [&](char *chunk) {
            ta_vec16 x = ta_load16(chunk);
#pragma unroll
            for (int w = 0; w < 4; w++)
                x.word[w] = to(x.word[w]);
            ta_store16(chunk, x);
        });
    }

    /* All chunks that this thread brought. */
    template <class Stage, class Do> TA_DEVICE void for_each_chunk(Stage stage, Do act)
    {
#pragma unroll 1
        for (int i = 0; i < rounds * wide; i++)
            if (has_row(i / wide))
                act(stage + at(i / wide, i % wide));
    }
};

#endif
