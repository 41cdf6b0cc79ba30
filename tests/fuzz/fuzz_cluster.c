/* Clusters from text: a description if the first byte is even, otherwise the text of a file. What
 * is accepted is written as text that gives the same cluster again, and a step is predicted on
 * it. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <treeattn/cluster.h>

#include "bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds)
        abort();
}

/* A cluster from a file that is only in memory. */
static ta_status read_text(const void *text, size_t bytes, ta_cluster **cluster)
{
    char path[64];
    int file = memfd_create("cluster", 0);
    require(file >= 0 && write(file, text, bytes) == (ssize_t)bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    ta_status status = ta_cluster_create(path, cluster);
    close(file);
    return status;
}

static char *text_of(const ta_cluster *cluster, size_t *bytes)
{
    require(ta_cluster_text(cluster, NULL, 0, bytes) == TA_OK);
    char *text = malloc(*bytes);
    require(ta_cluster_text(cluster, text, *bytes, NULL) == TA_OK && strlen(text) + 1 == *bytes);
    return text;
}

static void predict(const ta_cluster *cluster, int ranks)
{
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    config.batch = 1;
    config.query_heads = 2;
    config.k_dim = 8;
    config.kv_dtype = TA_F16;
    config.max_tokens = 1000;
    config.map.kind = TA_SHARD_BLOCK_CYCLIC;
    for (int candidate = 0; candidate < 12; ++candidate) {
        ta_prediction prediction = TA_PREDICTION_INIT;
        if (ta_predict(cluster, &config, ranks, candidate, &prediction) != TA_OK)
            return;
        require(!prediction.possible || prediction.step.seconds >= 0);
    }
}

static void check(ta_cluster *cluster, int ranks)
{
    size_t bytes, again_bytes;
    ta_cluster *again = NULL;
    char *text = text_of(cluster, &bytes);
    require(read_text(text, bytes - 1, &again) == TA_OK);
    char *again_text = text_of(again, &again_bytes);
    require(bytes == again_bytes && memcmp(text, again_text, bytes) == 0);
    predict(cluster, ranks);
    free(again_text);
    free(text);
    ta_cluster_destroy(again);
    ta_cluster_destroy(cluster);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ta_cluster *cluster = NULL;
    ta_status status;
    if (size < 2)
        return 0;
    if (data[0] % 2) {
        status = read_text(data + 2, size - 2, &cluster);
    } else {
        char *text = malloc(size - 1);
        memcpy(text, data + 2, size - 2);
        text[size - 2] = '\0';
        text[strcspn(text, "\n")] = '\0';
        /* Paths are for the other half: no fuzzer should open what it thinks of. */
        for (char *at = text; *at; ++at)
            *at = *at == '/' || (*at == '.' && strstr(at, ".cluster")) ? ' ' : *at;
        status = ta_cluster_create(text, &cluster);
        free(text);
    }
    require(status == TA_OK || (status < 0 && !cluster && *ta_last_error()));
    if (status == TA_OK)
        check(cluster, 1 + data[1] % 16);
    return 0;
}
