/* A rank's arguments in its device's memory; see device_copy.h. */
#include "device_copy.h"

#include <stdlib.h>
#include <string.h>

#include "common/elements.h"

/* The device's address for a piece of host memory; sets *status on failure. */
static void *add(device_copy *copy, const void *host, size_t bytes, ta_status *status)
{
    if (*status != TA_OK || !host || bytes == 0)
        return NULL;
    if (strcmp(ta_device_name(copy->device), "host") == 0)
        return (void *)host;
    int i = copy->count;
    *status = ta_device_alloc(copy->device, bytes, &copy->memory[i]);
    if (*status != TA_OK)
        return NULL;
    copy->host[i] = host;
    copy->bytes[i] = bytes;
    ++copy->count;
    *status = ta_device_copy(copy->device, copy->memory[i], host, bytes, NULL);
    return copy->memory[i];
}

/* Lists of all rows, for all KV heads each; and one group of all sequences. */
static ta_status make_lists(device_copy *copy, const decode_options *options, int32_t tokens)
{
    int64_t rows = options_rows(options), count = options->selected;
    size_t bytes = (size_t)(rows * count) * sizeof *copy->selected;
    ta_status status = TA_OK;
    if (count) {
        copy->selected = malloc(bytes);
        if (!copy->selected)
            return TA_ERR_NO_MEMORY;
        for (int64_t i = 0; i < rows * count; i++)
            copy->selected[i] = options_selected(options, tokens, i / count, i % count);
        copy->call.selected = add(copy, copy->selected, bytes, &status);
        copy->call.selected_count = (int32_t)count;
    }
    if (!options->shared_prefix)
        return status;
    copy->prefix_starts[1] = (int32_t)options->batch;
    copy->prefix_length = (int32_t)options->shared_prefix;
    copy->call.prefix_groups = 1;
    copy->call.prefix_starts = add(copy, copy->prefix_starts, sizeof copy->prefix_starts, &status);
    copy->call.prefix_lengths =
        add(copy, &copy->prefix_length, sizeof copy->prefix_length, &status);
    return status;
}

/* The call of a mixed batch, and its lists. */
static ta_status make_call(device_copy *copy, const decode_options *options, int32_t tokens)
{
    size_t count = (size_t)options->batch + 1;
    copy->call = (ta_call)TA_CALL_INIT;
    ta_status status = make_lists(copy, options, tokens);
    if (!options->ragged || status != TA_OK)
        return status;
    copy->starts = malloc(count * sizeof *copy->starts);
    if (!copy->starts)
        return TA_ERR_NO_MEMORY;
    copy->starts[0] = 0;
    for (size_t b = 1; b < count; b++)
        copy->starts[b] =
            copy->starts[b - 1] + (int32_t)options_query_tokens(options, (int64_t)b - 1);
    copy->call.tokens = copy->starts[count - 1];
    copy->call.starts = add(copy, copy->starts, count * sizeof *copy->starts, &status);
    return status;
}

static ta_status add_cache(device_copy *copy, const kv_layout *layout, int rank)
{
    const bench_case *row = layout->row;
    size_t kv_element = element_bytes(row->kv_dtype), word = sizeof(int32_t);
    size_t vectors = (size_t)layout->shard_vectors, batch = (size_t)layout->batch;
    ta_status status = TA_OK;
    kv_layout_view(layout, rank, &copy->kv);
    ta_kv *kv = &copy->kv;
    kv->k.data = add(copy, kv->k.data, vectors * (size_t)layout->k_dim * kv_element, &status);
    if (layout->v_own)
        kv->v.data = add(copy, kv->v.data, vectors * (size_t)layout->v_dim * kv_element, &status);
    else
        kv->v.data = kv->k.data;
    kv->lengths = add(copy, kv->lengths, batch * word, &status);
    kv->bounds = add(copy, kv->bounds, ((size_t)row->ranks + 1) * word, &status);
    kv->page_table =
        add(copy, kv->page_table, batch * (size_t)layout->pages_per_sequence * word, &status);
    copy->cache_count = copy->count;
    return status;
}

size_t device_copy_cache_bytes(const device_copy *copy)
{
    size_t bytes = 0;
    for (int i = 0; i < copy->cache_count; i++)
        bytes += copy->bytes[i];
    return bytes;
}

ta_status device_copy_make(device_copy *copy, ta_device *device, const decode_options *options,
                           const kv_layout *layout, const rank_tensors *tensors, int rank,
                           const device_copy *cache)
{
    size_t element = element_bytes(layout->row->dtype), rows = (size_t)options_rows(options);
    size_t results = rows * (size_t)tensors->out.heads;
    ta_status status = TA_OK;
    memset(copy, 0, sizeof *copy);
    copy->device = device;
    if (cache)
        copy->kv = cache->kv;
    else
        status = add_cache(copy, layout, rank);
    copy->query.data =
        add(copy, tensors->query.data,
            rows * (size_t)tensors->query.heads * (size_t)options->head_dim * element, &status);
    copy->out.data =
        add(copy, tensors->out.data, results * (size_t)options->v_dim * element, &status);
    copy->lse = add(copy, tensors->lse, results * sizeof(float), &status);
    return status == TA_OK ? make_call(copy, options, layout->row->tokens) : status;
}

void device_copy_free(device_copy *copy)
{
    for (int i = 0; i < copy->count; i++)
        ta_device_free(copy->device, copy->memory[i]);
    copy->count = 0;
    free(copy->starts);
    free(copy->selected);
    copy->starts = copy->selected = NULL;
}

ta_status device_copy_sweep(const device_copy *copy, void *scratch, double *bytes)
{
    ta_status status = TA_OK;
    const char *from = copy->memory[0]; /* K, if there is any */
    size_t left = copy->count > 0 && from == copy->kv.k.data ? copy->bytes[0] : 0;
    *bytes = 2.0 * (double)left;
    while (status == TA_OK && left > 0) {
        size_t piece = left < SWEEP_BYTES ? left : SWEEP_BYTES;
        status = ta_device_copy(copy->device, scratch, from, piece, NULL);
        from += piece;
        left -= piece;
    }
    return status;
}

ta_status device_copy_results(device_copy *copy, const rank_tensors *tensors, int back)
{
    ta_status status = TA_OK;
    for (int i = 0; status == TA_OK && i < copy->count; i++) {
        void *host = copy->host[i] == tensors->out.data ? tensors->out.data
                     : copy->host[i] == tensors->lse    ? tensors->lse
                                                        : NULL;
        if (host)
            status = ta_device_copy(copy->device, back ? host : copy->memory[i],
                                    back ? copy->memory[i] : host, copy->bytes[i], NULL);
    }
    return status == TA_OK ? ta_device_synchronize(copy->device, NULL) : status;
}
