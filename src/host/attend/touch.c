/* Touching pages of memory: see touch.h. */
#include "touch.h"

#include <stdlib.h>

#include "base/dtype.h"

/* Where the tokens of one side are: bytes of the first vector from one token to the next, and what
 * the heads of a token span, from the lowest one on. */
typedef struct side_shape {
    const char *lowest; /* of token 0, or with pages of token 0 of page 0 */
    int64_t step, token_bytes, page_bytes;
} side_shape;

static side_shape shape_of(const ta_touch *touch)
{
    const ta_tile_source *s = touch->source;
    const ta_tensor *tensor = touch->of_values ? &s->kv->v : &s->kv->k;
    int64_t size = (int64_t)ta_dtype_bytes(s->problem->kv_dtype);
    int64_t between = (touch->of_values ? s->v_head_bytes : s->k_head_bytes) * (touch->heads - 1);
    int32_t dim = touch->of_values ? s->problem->v_dim : s->problem->k_dim;
    const char *first = touch->of_values ? s->v : s->k;
    int apart = s->pages && s->kv->page_tokens == 1; /* then no token follows another */
    return (side_shape){.lowest = between < 0 ? first + between : first,
                        .step = apart ? 0 : tensor->token_stride * size,
                        .token_bytes = llabs(between) + dim * size,
                        .page_bytes = tensor->batch_stride * size};
}

int ta_touch_tokens(const ta_touch *touch, int block)
{
    side_shape shape = shape_of(touch);
    int64_t step = llabs(shape.step) < TA_MEMORY_PAGE ? llabs(shape.step) : TA_MEMORY_PAGE;
    int64_t tokens = TA_TOUCH_BYTES / (step > shape.token_bytes ? step : shape.token_bytes);
    return tokens > block ? (int)(tokens / block * block) : block;
}

/* Where the lines go: to fn, or if there is none to the CPU. */
typedef struct line_sink {
    void (*fn)(void *context, const char *line);
    void *context;
} line_sink;

#define INLINE static inline __attribute__((always_inline))

INLINE void touch_bytes(line_sink sink, const char *first, int64_t bytes)
{
    const char *end = first + bytes;
    while (first < end) {
        if (sink.fn)
            sink.fn(sink.context, first);
        else
            __builtin_prefetch(first, 0, 2);
        first += TA_MEMORY_PAGE - (uintptr_t)first % TA_MEMORY_PAGE;
    }
}

/* Tokens at equal distances; those that are far apart each by itself. */
INLINE void touch_run(line_sink sink, const side_shape *shape, const char *first, int32_t count)
{
    int64_t more = (count - 1) * shape->step;
    if (llabs(shape->step) <= TA_MEMORY_PAGE) {
        touch_bytes(sink, more < 0 ? first + more : first, llabs(more) + shape->token_bytes);
        return;
    }
    for (int32_t i = 0; i < count; i++)
        touch_bytes(sink, first + i * shape->step, shape->token_bytes);
}

INLINE void touch_lane(line_sink sink, const ta_touch *touch, const side_shape *shape,
                       int32_t first, int count)
{
    const int32_t *pages = touch->source->pages;
    int32_t page_tokens = touch->source->kv->page_tokens;
    if (!pages) {
        touch_run(sink, shape, shape->lowest + first * shape->step, count);
        return;
    }
    for (int32_t at = first, end = first + count, run; at < end; at += run) {
        int32_t in_page = at % page_tokens;
        const char *page = shape->lowest + pages[at / page_tokens] * shape->page_bytes;
        run = end - at < page_tokens - in_page ? end - at : page_tokens - in_page;
        touch_run(sink, shape, page + in_page * shape->step, run);
    }
}

INLINE void touch_all(line_sink sink, const ta_touch *touch, int32_t first, int count)
{
    side_shape shape = shape_of(touch);
    int lanes = touch->lane_tokens ? TA_TILE_LANES : 1;
    if (count <= 0)
        return;
    for (int lane = 0; lane < lanes; lane++)
        touch_lane(sink, touch, &shape, first + lane * touch->lane_tokens,
                   (count + lanes - 1) / lanes);
}

void ta_touch_pages(const ta_touch *touch, int32_t first, int count)
{
    touch_all((line_sink){0}, touch, first, count);
}

void ta_touch_lines(const ta_touch *touch, int32_t first, int count,
                    void (*fn)(void *context, const char *line), void *context)
{
    touch_all((line_sink){fn, context}, touch, first, count);
}
