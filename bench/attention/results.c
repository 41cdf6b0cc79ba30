/* See results.h. run.c fills them row by row, check.c reads them. */
#include "results.h"

#include <stdlib.h>

#include "common/launch.h"

static size_t query_rows(const attention_row *row)
{
    return (size_t)row->tokens * (size_t)row->query_heads;
}

static size_t key_rows(const attention_row *row)
{
    return (size_t)row->tokens * (size_t)row->kv_heads;
}

int attention_data_make(attention_data *data, const attention_row *row)
{
    size_t rows = query_rows(row), keys = key_rows(row), dim = (size_t)row->head_dim;
    data->lse = calloc(rows, sizeof(double));
    data->out = calloc(rows * dim, sizeof(double));
    data->dq = calloc(rows * dim, sizeof(double));
    data->dk = calloc(keys * dim, sizeof(double));
    data->dv = calloc(keys * dim, sizeof(double));
    if (data->lse && data->out && data->dq && data->dk && data->dv)
        return 0;
    attention_data_free(data);
    return -1;
}

void attention_data_free(attention_data *data)
{
    free(data->lse);
    free(data->out);
    free(data->dq);
    free(data->dk);
    free(data->dv);
    *data = (attention_data){0};
}

static void share_numbers(double *numbers, size_t count)
{
    const size_t most = 1 << 20;
    for (size_t done = 0; done < count; done += most)
        launch_sum(numbers + done, (int)(count - done < most ? count - done : most));
}

void attention_data_share(attention_data *data, const attention_row *row)
{
    size_t rows = query_rows(row), keys = key_rows(row), dim = (size_t)row->head_dim;
    share_numbers(data->out, rows * dim);
    share_numbers(data->lse, rows);
    share_numbers(data->dq, rows * dim);
    share_numbers(data->dk, keys * dim);
    share_numbers(data->dv, keys * dim);
}
