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

/* The call of a mixed batch. */
static ta_status make_call(device_copy *copy, const decode_options *options)
{
    size_t count = (size_t)options->batch + 1;
    ta_status status = TA_OK;
    copy->call = (ta_call)TA_CALL_INIT;
    if (!options->ragged)
        return TA_OK;
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

ta_status device_copy_make(device_copy *copy, ta_device *device, const decode_options *options,
                           const kv_layout *layout, const rank_tensors *tensors, int rank)
{
    const bench_case *row = layout->row;
    size_t element = element_bytes(row->dtype);
    size_t vectors = (size_t)layout->shard_vectors, batch = (size_t)layout->batch;
    size_t rows = (size_t)options_rows(options), word = sizeof(int32_t);
    size_t results = rows * (size_t)tensors->out.heads;
    ta_status status = TA_OK;
    memset(copy, 0, sizeof *copy);
    copy->device = device;
    kv_layout_view(layout, rank, &copy->kv);
    ta_kv *kv = &copy->kv;
    kv->k.data = add(copy, kv->k.data, vectors * (size_t)layout->k_dim * element, &status);
    kv->v.data = add(copy, kv->v.data, vectors * (size_t)layout->v_dim * element, &status);
    kv->lengths = add(copy, kv->lengths, batch * word, &status);
    kv->bounds = add(copy, kv->bounds, ((size_t)row->ranks + 1) * word, &status);
    kv->page_table =
        add(copy, kv->page_table, batch * (size_t)layout->pages_per_sequence * word, &status);
    copy->query.data =
        add(copy, tensors->query.data,
            rows * (size_t)tensors->query.heads * (size_t)options->head_dim * element, &status);
    copy->out.data =
        add(copy, tensors->out.data, results * (size_t)options->v_dim * element, &status);
    copy->lse = add(copy, tensors->lse, results * sizeof(float), &status);
    return status == TA_OK ? make_call(copy, options) : status;
}

void device_copy_free(device_copy *copy)
{
    for (int i = 0; i < copy->count; i++)
        ta_device_free(copy->device, copy->memory[i]);
    copy->count = 0;
    free(copy->starts);
    copy->starts = NULL;
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
