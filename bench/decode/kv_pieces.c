/* The memory that a step reads, as a list of pieces: what the reading threads of measure.c go over,
 * so that they read the same bytes of the same pages. See kv_cache.h. */
#include <stdlib.h>

#include "common/elements.h"
#include "kv_cache.h"

/* Are the heads of a token neighbours in a page? Else the tokens of a head are. */
static int heads_together(const kv_layout *layout)
{
    return layout->token_stride > 1 || layout->page_tokens == 1;
}

/* The pages of K, or of V, that a rank has of a sequence; of one head where heads are apart. */
static size_t list_pages(const kv_layout *layout, int rank, int32_t sequence, int32_t head,
                         int of_values, read_piece *list)
{
    int32_t held = layout->shards[rank].tokens, page = layout->page_tokens;
    size_t count = 0, dim = (size_t)(of_values ? layout->v_dim : layout->k_dim);
    size_t token = dim * element_bytes(layout->row->kv_dtype) *
                   (size_t)(heads_together(layout) ? layout->row->kv_heads : 1);
    for (int32_t at = 0; at < held; at += page) {
        size_t tokens = (size_t)(held - at < page ? held - at : page);
        kv_vectors place = kv_layout_at(layout, rank, sequence, at, head);
        list[count++] = (read_piece){of_values ? place.v : place.k, tokens * token};
    }
    return count;
}

/* Without pages: all that the ranks have, from the first one's K on. */
static read_piece whole_cache(const kv_layout *layout, int first, int end)
{
    size_t vectors = 0, dims = (size_t)(layout->k_dim + layout->v_own);
    for (int rank = first; rank < end; rank++)
        vectors += (size_t)layout->shards[rank].tokens * (size_t)layout->row->kv_heads;
    vectors *= (size_t)layout->batch;
    return (read_piece){layout->shards[first].k,
                        vectors * dims * element_bytes(layout->row->kv_dtype)};
}

read_piece *kv_layout_pieces(const kv_layout *layout, int first, int end, size_t *count)
{
    size_t heads = heads_together(layout) ? 1 : (size_t)layout->row->kv_heads;
    size_t sequences = (size_t)(end - first) * (size_t)layout->batch;
    size_t pages = sequences * heads * 2 * (size_t)layout->pages_per_sequence;
    read_piece *list = malloc((pages + 1) * sizeof *list);
    *count = 0;
    if (!list)
        return NULL;
    if (!layout->page_tokens) {
        list[(*count)++] = whole_cache(layout, first, end);
        return list;
    }
    for (size_t i = 0; i < sequences; i++)
        for (size_t side = 0; side < 2 * heads; side += layout->v_own ? 1 : 2)
            *count += list_pages(layout, first + (int)(i / (size_t)layout->batch),
                                 (int32_t)(i % (size_t)layout->batch), (int32_t)(side / 2),
                                 side % 2, list + *count);
    return list;
}
