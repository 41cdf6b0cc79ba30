/* See part.h. */
#include "part.h"

#include <stdlib.h>
#include <string.h>

#include "common/elements.h"

static int is_input(int tensor)
{
    return tensor <= PART_DOUT;
}

static int64_t heads_of(const attention_row *row, int tensor)
{
    int of_keys = tensor == PART_K || tensor == PART_V || tensor == PART_DK || tensor == PART_DV;
    return of_keys ? row->kv_heads : row->query_heads;
}

/* Numbers of one token, and their bytes. */
static int64_t token_numbers(const attention_row *row, int tensor)
{
    return heads_of(row, tensor) * (tensor == PART_LSE ? 1 : row->head_dim);
}

static ta_dtype dtype_of(const attention_row *row, int tensor)
{
    return tensor == PART_LSE ? TA_F32 : row->dtype;
}

static size_t token_bytes(const attention_row *row, int tensor)
{
    return (size_t)token_numbers(row, tensor) * element_bytes(dtype_of(row, tensor));
}

/* Some rows of an input, for tokens in a row. */
static void fill_input(const attention_row *row, int input, int64_t first, int64_t rows, void *data)
{
    element_fill(row->dtype, data, first * row->head_dim, rows * row->head_dim, (uint64_t)input + 1,
                 input == PART_Q ? 4.0f : 1.0f);
}

void part_input_row(const attention_row *row, int input, int32_t token, int32_t head,
                    double *numbers)
{
    float stored[256];
    fill_input(row, input, token * heads_of(row, input) + head, 1, stored);
    element_read(row->dtype, stored, row->head_dim, numbers);
}

/* The map with the block that the plan uses. */
static ta_shard_map row_map(const attention_row *row)
{
    ta_shard_map map = TA_SHARD_MAP_INIT;
    int parts = row->map == TA_SHARD_ZIGZAG ? 2 * row->ranks : row->ranks;
    map.kind = row->map;
    map.ranks = row->ranks;
    map.block = row->block;
    if (!map.block && row->map != TA_SHARD_BLOCK_CYCLIC)
        map.block = (row->tokens + parts - 1) / parts;
    return map;
}

ta_status part_most_tokens(const attention_row *row, int32_t *tokens)
{
    ta_shard_map map = row_map(row);
    *tokens = 1;
    for (int rank = 0; rank < row->ranks; rank++) {
        int32_t count;
        ta_status status = ta_shard_count(&map, rank, row->tokens, &count);
        if (status != TA_OK)
            return status;
        *tokens = count > *tokens ? count : *tokens;
    }
    return TA_OK;
}

/* Fill `staging` with what a tensor begins as. */
static void fill_tensor(const attention_row *row, const rank_part *part, int tensor, char *staging)
{
    size_t each = token_bytes(row, tensor);
    int64_t heads = heads_of(row, tensor);
    memset(staging, 0xff, (size_t)part->tokens * each); /* NaN */
    for (int32_t i = 0; is_input(tensor) && i < part->tokens; i++)
        fill_input(row, tensor, part->positions[i] * heads, heads, staging + (size_t)i * each);
}

static ta_status write_tensor(const attention_row *row, rank_part *part, int tensor)
{
    size_t bytes = (size_t)part->tokens * token_bytes(row, tensor);
    if (!bytes)
        return TA_OK;
    char *staging = malloc(bytes);
    if (!staging)
        return TA_ERR_NO_MEMORY;
    fill_tensor(row, part, tensor, staging);
    ta_status status = ta_device_copy(part->device, part->tensors[tensor], staging, bytes, NULL);
    if (status == TA_OK)
        status = ta_device_synchronize(part->device, NULL);
    free(staging);
    return status;
}

static ta_status make_tensor(const attention_row *row, rank_part *part, int tensor)
{
    size_t bytes = (size_t)part->tokens * token_bytes(row, tensor);
    ta_status status = ta_device_alloc(part->device, bytes ? bytes : 1, &part->tensors[tensor]);
    part->bytes += bytes;
    return status == TA_OK ? write_tensor(row, part, tensor) : status;
}

ta_status part_poison(const attention_row *row, rank_part *part)
{
    ta_status status = TA_OK;
    for (int tensor = 0; status == TA_OK && tensor < PARTS; tensor++)
        if (!is_input(tensor))
            status = write_tensor(row, part, tensor);
    return status;
}

ta_status part_make(const attention_row *row, int rank, ta_device *device, rank_part *part)
{
    ta_shard_map map = row_map(row);
    part->device = device;
    ta_status status = ta_shard_count(&map, rank, row->tokens, &part->tokens);
    if (status != TA_OK)
        return status;
    part->positions = calloc((size_t)part->tokens + 1, sizeof *part->positions);
    if (!part->positions)
        return TA_ERR_NO_MEMORY;
    for (int32_t i = 0; status == TA_OK && i < part->tokens; i++)
        status = ta_shard_position(&map, rank, i, &part->positions[i]);
    for (int tensor = 0; status == TA_OK && tensor < PARTS; tensor++)
        status = make_tensor(row, part, tensor);
    return status;
}

void part_free(rank_part *part)
{
    for (int tensor = 0; tensor < PARTS; tensor++)
        if (part->tensors[tensor])
            ta_device_free(part->device, part->tensors[tensor]);
    free(part->positions);
}

static ta_status collect_tensor(const attention_row *row, const rank_part *part, int tensor,
                                double *to)
{
    int64_t numbers = token_numbers(row, tensor);
    size_t each = token_bytes(row, tensor), bytes = (size_t)part->tokens * each;
    char *staging = malloc(bytes + 1);
    if (!staging)
        return TA_ERR_NO_MEMORY;
    ta_status status = TA_OK;
    if (bytes)
        status = ta_device_copy(part->device, staging, part->tensors[tensor], bytes, NULL);
    if (status == TA_OK)
        status = ta_device_synchronize(part->device, NULL);
    for (int32_t i = 0; status == TA_OK && i < part->tokens; i++)
        element_read(dtype_of(row, tensor), staging + (size_t)i * each, numbers,
                     to + part->positions[i] * numbers);
    free(staging);
    return status;
}

ta_status part_collect(const attention_row *row, const rank_part *part, attention_data *data)
{
    const struct {
        int tensor;
        double *to;
    } results[] = {{PART_OUT, data->out},
                   {PART_LSE, data->lse},
                   {PART_DQ, data->dq},
                   {PART_DK, data->dk},
                   {PART_DV, data->dv}};
    ta_status status = TA_OK;
    for (size_t i = 0; status == TA_OK && i < sizeof results / sizeof *results; i++)
        status = collect_tensor(row, part, results[i].tensor, results[i].to);
    return status;
}
