/* Tiles of rows on their way to a block of attention_backward_mma: who the others are (their
 * lines), and their elements. Nothing is waited for while a tile is computed: the row of each of
 * the others is asked for three tiles ahead, the rest of its line two ahead, its elements one
 * ahead. backward_mma.hip uses it. */
#ifndef TA_HIP_ATTENTION_BACKWARD_TILE_H
#define TA_HIP_ATTENTION_BACKWARD_TILE_H

#include "backward_shape.h"
#include "stage.h"

/* The line of one of the others that this thread makes, if it makes one: in steps, each of which
 * uses what an earlier one asked memory for. */
template <bool Keys> struct ta_line_ahead {
    int32_t number; /* -1: beyond the last */
    int32_t row;

    __device__ __forceinline__ void find_row(const ta_attention_work &w, const ta_block_ranges &m,
                                             int32_t at)
    {
        number = at + static_cast<int32_t>(threadIdx.x);
        row = -1;
        if (number >= m.end)
            number = -1;
        else if (Keys)
            row = ta_load_global(w.query_rows + number / (w.query_heads / w.kv_heads));
        else
            row = ta_load_global(w.key_rows + number);
    }

    __device__ __forceinline__ ta_line find_line(const ta_attention_backward_params &p,
                                                 const ta_block_ranges &m) const
    {
        const ta_attention_work &w = p.common.work;
        ta_line line = ta_no_line();
        if (number < 0)
            return line;
        line.row = row;
        line.head = m.kv_head;
        if (!Keys)
            return line;
        int32_t heads = w.query_heads / w.kv_heads, query = number / heads;
        line.head = m.kv_head * heads + number % heads;
        int64_t at = static_cast<int64_t>(row) * w.query_heads + line.head;
        line.lse = load_float(p.gradient.lse + at);
        line.delta = load_float(p.gradient.delta + at);
        line.first = ta_load_global(&w.visible[query].first);
        line.end = ta_load_global(&w.visible[query].end);
        return line;
    }

    TA_DEVICE float load_float(const float *from)
    {
        return ta_as_float(ta_load_word(reinterpret_cast<const uint32_t *>(from)));
    }

    /* What find_line() found, as it is used. */
    TA_DEVICE ta_line finish(ta_line line)
    {
        line.lse *= TA_LOG2E;
        if (Keys && line.lse == -INFINITY)
            line.end = line.first;
        return line;
    }
};

/* A tile of query rows, or of keys, on its way: what has k_dim, then what has v_dim. */
template <int Dim, int Rows, int Threads, bool Queries> struct ta_tile_copy {
    ta_stage_copy<Dim, Rows, Threads> k, v;
    static const int half = Rows * Dim * 2;

    __device__ __forceinline__ void start(const ta_backward_args &a, const ta_line *lines, char *to)
    {
        const ta_attention_work &w = a.p.common.work;
        start_one(k, Queries ? w.q : w.k, w.k_dim, lines, to);
        start_one(v, Queries ? a.p.gradient.dout : w.v, w.v_dim, lines, to + half);
    }

    static __device__ __forceinline__ void start_one(ta_stage_copy<Dim, Rows, Threads> &copy,
                                                     const ta_tensor &from, int32_t dim,
                                                     const ta_line *lines, char *to)
    {
        copy.start(copy.of_thread(from.data), dim, to, [&](int i, bool &exists) {
            ta_line line = lines[copy.row(i)];
            exists = line.row >= 0;
            line.row = max(line.row, 0);
            return ta_line_element(from, line) * 2;
        });
    }

    __device__ __forceinline__ void finish(char *to) const
    {
        k.finish(to);
        v.finish(to + half);
    }
};

/* The lines of a tile of others are made: `line` is this thread's. */
template <bool Keys, int Others>
TA_DEVICE void ta_store_line(const ta_backward_args &a, ta_backward_mma_tables &tables, int which,
                             const ta_line &line, const ta_block_ranges &m, int32_t at)
{
    int32_t thread = static_cast<int32_t>(threadIdx.x), own = m.own, end = m.own + a.s.own;
    bool partly = false;
    if (thread < Others) {
        tables.others[which].lines[thread] = line;
        if (Keys)
            partly = line.first > own || line.end < min(end, a.p.common.work.keys);
    }
    if (!Keys) { /* all of the block's rows must see all of the tile */
        for (int32_t r = ta_lane(); r < a.s.own; r += Others)
            partly |= tables.own[r].row >= 0 &&
                      (tables.own[r].first > at || tables.own[r].end < at + Others);
    }
    partly = ta_any(partly);
    if (thread == 0) {
        tables.others[which].partly = partly;
        tables.others[which].not_finite = 0;
    }
}

#endif
