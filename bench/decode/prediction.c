/* Predictions; see prediction.h. measure.c asks for them, report.c writes them out. */
#include "prediction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "rank_plan.h"

ta_status prediction_cluster(const decode_options *options, ta_group *group, ta_device *device,
                             ta_cluster **cluster)
{
    *cluster = NULL;
    if (!options->cluster)
        return TA_OK;
    if (strcmp(options->cluster, "probe") == 0)
        return ta_cluster_probe(group, device, cluster);
    return ta_cluster_create(options->cluster, cluster);
}

/* Is it the row's algorithm? */
static int is_of(const ta_prediction *p, const bench_case *row)
{
    if (row->ranks == 1) /* where all of them are the same */
        return 1;
    if (row->algorithm == TA_ALGORITHM_AUTO) /* which never leaves a rank idle */
        return p->algorithm != TA_ALGORITHM_ONE_DEVICE;
    return p->algorithm == row->algorithm;
}

/* The fastest way of the row's algorithm; with `chosen`, that way alone. */
static ta_status find_best(const decode_options *options, const ta_cluster *cluster,
                           const bench_case *row, const ta_prediction *chosen, ta_prediction *best)
{
    ta_plan_config config = rank_plan_config(options, row);
    for (int candidate = 0;; candidate++) {
        ta_prediction p = TA_PREDICTION_INIT;
        ta_status status = ta_predict(cluster, &config, row->ranks, candidate, &p);
        if (status == TA_ERR_NOT_FOUND)
            return TA_OK;
        if (status != TA_OK)
            return status;
        if (chosen && (p.algorithm != chosen->algorithm || p.exchange != chosen->exchange))
            continue;
        /* Groups that move device memory have no exchange by all-reduce. */
        if (options->group == RANK_GROUP_CCL && p.exchange == TA_EXCHANGE_ALL_REDUCE)
            continue;
        if (p.possible && is_of(&p, row) &&
            (best->step.seconds == 0 || p.step.seconds < best->step.seconds))
            *best = p;
    }
}

ta_status prediction_keep(const ta_cluster *cluster, bench_result *result)
{
    size_t bytes = 0;
    ta_status status = ta_cluster_text(cluster, NULL, 0, &bytes);
    if (status != TA_OK)
        return status;
    result->predicted.cluster = malloc(bytes);
    if (!result->predicted.cluster)
        return TA_ERR_NO_MEMORY;
    return ta_cluster_text(cluster, result->predicted.cluster, bytes, NULL);
}

/* Write the text, with another memory bandwidth unless that is 0. */
static void write_cluster(FILE *file, const char *text, double bytes_per_second)
{
    static const char key[] = "device.memory_bytes_per_second";
    while (*text) {
        int length = (int)strcspn(text, "\n");
        if (bytes_per_second > 0 && strncmp(text, key, sizeof key - 1) == 0)
            fprintf(file, "%s = %.17g\n", key, bytes_per_second);
        else
            fprintf(file, "%.*s\n", length, text);
        text += length + (text[length] == '\n');
    }
}

/* A cluster is made from a file, so there is one for a moment. */
static ta_status read_cluster(const char *text, double bytes_per_second, ta_cluster **cluster)
{
    char path[] = "/tmp/treeattn-XXXXXX.cluster";
    int descriptor = mkstemps(path, (int)strlen(".cluster"));
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    if (!file)
        return TA_ERR_SYSTEM;
    write_cluster(file, text, bytes_per_second);
    ta_status status = fclose(file) == 0 ? ta_cluster_create(path, cluster) : TA_ERR_SYSTEM;
    remove(path);
    return status;
}

/* The plan chose its way by the cluster as it was probed. How long that takes is predicted with the
 * memory bandwidth that was measured beside it. */
static ta_status predict_probed(const decode_options *options, const bench_result *result,
                                ta_cluster **cluster, ta_prediction *best)
{
    const char *text = result->predicted.cluster;
    double measured = result_read_gbps(result) * 1e9 / result->row.ranks;
    ta_cluster *probed = NULL;
    ta_prediction chosen = TA_PREDICTION_INIT;
    ta_status status = read_cluster(text, 0, &probed);
    if (status == TA_OK)
        status = find_best(options, probed, &result->row, NULL, &chosen);
    ta_cluster_destroy(probed);
    if (status == TA_OK)
        status = read_cluster(text, measured, cluster);
    if (status == TA_OK)
        status = find_best(options, *cluster, &result->row, &chosen, best);
    return status;
}

ta_status prediction_make(const decode_options *options, bench_result *result)
{
    row_prediction *made = &result->predicted;
    ta_prediction best = TA_PREDICTION_INIT;
    ta_cluster *cluster = NULL;
    ta_status status;
    if (!made->cluster)
        return TA_OK;
    if (strcmp(options->cluster, "probe") == 0) {
        status = predict_probed(options, result, &cluster, &best);
    } else {
        status = ta_cluster_create(options->cluster, &cluster);
        if (status == TA_OK)
            status = find_best(options, cluster, &result->row, NULL, &best);
    }
    free(made->cluster);
    made->cluster = NULL;
    if (status == TA_OK && best.step.seconds > 0)
        status = prediction_keep(cluster, result);
    ta_cluster_destroy(cluster);
    made->exchange = best.algorithm == TA_ALGORITHM_TREE ? ta_exchange_name(best.exchange) : "";
    made->step_us = best.step.seconds * 1e6;
    made->attend_us = best.step.attend_seconds * 1e6;
    made->messages = (double)best.step.messages_sent;
    made->bytes = (double)best.step.bytes_sent;
    made->peak_bytes = best.memory_bytes;
    return status;
}
