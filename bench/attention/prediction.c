/* See prediction.h. */
#include "prediction.h"

#include <treeattn/cluster.h>

#include "part.h"

ta_status attention_model_config(const attention_row *row, ta_attention_config *config)
{
    config->query_heads = row->query_heads;
    config->kv_heads = row->kv_heads;
    config->k_dim = row->head_dim;
    config->dtype = row->dtype;
    config->map.kind = row->map;
    config->map.block = row->block;
    config->mask = row->mask;
    return part_most_tokens(row, &config->max_tokens);
}

ta_status attention_model_columns(attention_row *row)
{
    ta_attention_config config = TA_ATTENTION_CONFIG_INIT;
    double least = 0;
    if (!row->cluster || row->columns || row->algorithm == TA_ATTENTION_AUTO ||
        row->algorithm == TA_ATTENTION_RING)
        return TA_OK;
    ta_status status = attention_model_config(row, &config);
    for (int i = 0; status == TA_OK; i++) {
        ta_attention_prediction p = TA_ATTENTION_PREDICTION_INIT;
        status = ta_attention_predict(row->cluster, &config, row->ranks, i, &p);
        double seconds = p.forward.seconds + p.backward.seconds;
        if (status != TA_OK || (p.algorithm != row->algorithm && row->ranks > 1) ||
            (row->columns && seconds >= least))
            continue;
        least = seconds;
        row->columns = p.grid_columns;
    }
    return status == TA_ERR_NOT_FOUND ? TA_OK : status;
}

ta_status attention_model_times(const attention_row *row, attention_times *times)
{
    ta_attention_config config = TA_ATTENTION_CONFIG_INIT;
    ta_attention_algorithm algorithm = row->ranks > 1 ? times->algorithm : TA_ATTENTION_GRID;
    int ring = algorithm == TA_ATTENTION_RING;
    ta_status status = attention_model_config(row, &config);
    for (int i = 0; status == TA_OK; i++) {
        ta_attention_prediction p = TA_ATTENTION_PREDICTION_INIT;
        status = ta_attention_predict(row->cluster, &config, row->ranks, i, &p);
        if (status != TA_OK || p.algorithm != algorithm ||
            (!ring && p.grid_columns != times->grid_columns))
            continue;
        times->model_us[PASS_FORWARD] = p.forward.seconds * 1e6;
        times->model_us[PASS_BACKWARD] = p.backward.seconds * 1e6;
        break;
    }
    return status;
}
