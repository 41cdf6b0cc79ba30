/* Clusters as text, one `key = value` a line, `#` before a remark. Errors name the file, the line,
 * the key, its value and what would be right. cluster.c and file.c set keys by name; places.c has
 * the lines of places. A line may have a million words, so each is read once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/status.h"
#include "cluster.h"

#define SECONDS "a number of seconds from 0 to 100"
#define BYTES_PER_SECOND "a number of bytes per second from 1 to 1e18"
#define FLOPS "a number of operations per second from 1 to 1e21"
#define LEVEL(name, level, optional)                                                               \
    {name ".latency_seconds",                                                                      \
     offsetof(ta_cluster, levels[level].latency_s),                                                \
     0,                                                                                            \
     100,                                                                                          \
     0,                                                                                            \
     optional,                                                                                     \
     SECONDS},                                                                                     \
        {name ".rank_bytes_per_second",                                                            \
         offsetof(ta_cluster, levels[level].rank_bytes_per_s),                                     \
         1,                                                                                        \
         1e18,                                                                                     \
         0,                                                                                        \
         optional,                                                                                 \
         BYTES_PER_SECOND},                                                                        \
        {name ".total_bytes_per_second",                                                           \
         offsetof(ta_cluster, levels[level].total_bytes_per_s),                                    \
         1,                                                                                        \
         1e18,                                                                                     \
         0,                                                                                        \
         optional,                                                                                 \
         BYTES_PER_SECOND},                                                                        \
        {name ".eager_bytes",                                                                      \
         offsetof(ta_cluster, levels[level].eager_bytes),                                          \
         0,                                                                                        \
         1e18,                                                                                     \
         0,                                                                                        \
         1,                                                                                        \
         "a number of bytes from 0 to 1e18"},                                                      \
    {                                                                                              \
        name ".handshake_seconds", offsetof(ta_cluster, levels[level].handshake_s), 0, 100, 0, 1,  \
            SECONDS                                                                                \
    }

const ta_cluster_key ta_cluster_keys[TA_CLUSTER_KEYS] = {
    {"device.memory_bytes", offsetof(ta_cluster, memory_bytes), 1, 1e18, 0, 0,
     "a number of bytes from 1 to 1e18"},
    {"device.memory_bytes_per_second", offsetof(ta_cluster, memory_bytes_per_s), 1, 1e18, 0, 0,
     BYTES_PER_SECOND},
    {"device.kernel_seconds", offsetof(ta_cluster, kernel_s), 0, 100, 0, 0, SECONDS},
    {"device.flops_per_second", offsetof(ta_cluster, flops_per_s[0]), 1, 1e21, 0, 1, FLOPS},
    {"device.half_flops_per_second", offsetof(ta_cluster, flops_per_s[1]), 1, 1e21, 0, 1, FLOPS},
    {"nics_per_node", offsetof(ta_cluster, nics_per_node), 1, 1024, 1, 0,
     "a whole number from 1 to 1024"},
    {"nodes_per_rack", offsetof(ta_cluster, nodes_per_rack), 0, TA_CLUSTER_MAX_RANKS, 1, 0,
     "a whole number from 0 (one rack) to 1048576"},
    LEVEL("node", TA_LEVEL_NODE, 0),
    LEVEL("network", TA_LEVEL_NETWORK, 0),
    LEVEL("rack", TA_LEVEL_RACK, 0),
    LEVEL("package", TA_LEVEL_PACKAGE, 1),
    {"node.signal_seconds", offsetof(ta_cluster, signal_s), 0, 100, 0, 1, SECONDS},
    {"node.read_bytes_per_second", offsetof(ta_cluster, read_bytes_per_s), 1, 1e18, 0, 1,
     BYTES_PER_SECOND},
};

/* What a message shows of a value. */
#define SHOWN 100

ta_status ta_cluster_bad_value(const ta_cluster_draft *draft, const char *key, const char *value,
                               const char *right)
{
    return ta_fail(TA_ERR_INVALID, "%s: %s is '%.*s%s': must be %s", draft->where, key, SHOWN,
                   value, strlen(value) > SHOWN ? "…" : "", right);
}

int ta_cluster_next_word(const char **at, char *word, size_t capacity)
{
    const char *start = *at + strspn(*at, " \t");
    size_t length = strcspn(start, " \t");
    *at = start + length;
    memcpy(word, start, length < capacity ? length : 0);
    word[length < capacity ? length : 0] = '\0';
    return length > 0;
}

static ta_status set_number(ta_cluster_draft *draft, int index, const char *text)
{
    const ta_cluster_key *key = &ta_cluster_keys[index];
    char *end;
    double value = ta_parse_number(text, &end);
    if (end == text || *end || !(value >= key->low && value <= key->high) ||
        (key->whole && value != (double)(long)value))
        return ta_cluster_bad_value(draft, key->name, text, key->right);
    memcpy((char *)draft->cluster + key->offset, &value, sizeof value);
    draft->given |= 1u << index;
    return TA_OK;
}

static ta_status set_text(ta_cluster_draft *draft, const char *key, const char *value, char *field,
                          size_t capacity)
{
    if (!*value || strlen(value) >= capacity)
        return ta_cluster_bad_value(draft, key, value, "a text of 1 to 63 characters");
    memcpy(field, value, strlen(value) + 1);
    return TA_OK;
}

/* Append `count` ranks on one node. */
static ta_status add_ranks(ta_cluster_draft *draft, int node, int count)
{
    ta_cluster *c = draft->cluster;
    if (count > TA_CLUSTER_MAX_RANKS - c->ranks)
        return ta_fail(TA_ERR_INVALID, "%s: nodes have more than %d ranks", draft->where,
                       TA_CLUSTER_MAX_RANKS);
    if (c->ranks + count > draft->rank_room) {
        int room = 2 * (c->ranks + count);
        int *grown = realloc(c->node_of, (size_t)room * sizeof *grown);
        if (!grown)
            return ta_fail(TA_ERR_NO_MEMORY, "no memory for the %d ranks of a cluster", room);
        c->node_of = grown;
        draft->rank_room = room;
    }
    for (int i = 0; i < count; ++i)
        c->node_of[c->ranks++] = node;
    if (node >= c->nodes)
        c->nodes = node + 1;
    return TA_OK;
}

static void clear_ranks(ta_cluster_draft *draft)
{
    ta_cluster *c = draft->cluster;
    ta_cluster_free_places(c);
    free(c->node_of);
    c->node_of = NULL;
    c->ranks = c->nodes = draft->rank_room = 0;
}

ta_status ta_cluster_set_nodes(ta_cluster_draft *draft, const char *value)
{
    static const char right[] = "items COUNTxRANKS with numbers of 1 and more, as in '16x8' or "
                                "'2x8 1x4', and at most 1048576 ranks";
    const char *at = value;
    char word[32];
    clear_ranks(draft);
    while (ta_cluster_next_word(&at, word, sizeof word)) {
        int count, ranks, length = 0;
        if (sscanf(word, "%7dx%7d%n", &count, &ranks, &length) != 2 || word[length] || count < 1 ||
            ranks < 1 || count > TA_CLUSTER_MAX_RANKS || ranks > TA_CLUSTER_MAX_RANKS ||
            (int64_t)count * ranks > TA_CLUSTER_MAX_RANKS - draft->cluster->ranks)
            return ta_cluster_bad_value(draft, "nodes", value, right);
        for (int i = 0; i < count; ++i)
            TA_TRY(add_ranks(draft, draft->cluster->nodes, ranks));
    }
    return draft->cluster->ranks ? TA_OK : ta_cluster_bad_value(draft, "nodes", value, right);
}

/* Is there a rank on each node? */
static ta_status check_nodes(const ta_cluster *c, int *all)
{
    int found = 0;
    *all = 0;
    if (c->nodes > c->ranks)
        return TA_OK;
    char *seen = calloc((size_t)c->nodes + 1, 1);
    if (!seen)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the %d nodes of a cluster", c->nodes);
    for (int rank = 0; rank < c->ranks; ++rank) {
        found += !seen[c->node_of[rank]];
        seen[c->node_of[rank]] = 1;
    }
    free(seen);
    *all = found == c->nodes;
    return TA_OK;
}

/* The node of each rank, for ranks that are not in the order of their nodes. */
static ta_status set_node_of_rank(ta_cluster_draft *draft, const char *value)
{
    static const char right[] = "the number of each rank's node: numbers from 0 on, none left out";
    const char *at = value;
    char word[32];
    int all = 0;
    clear_ranks(draft);
    while (ta_cluster_next_word(&at, word, sizeof word)) {
        int node, length = 0;
        if (sscanf(word, "%7d%n", &node, &length) != 1 || word[length] || node < 0)
            return ta_cluster_bad_value(draft, "node_of_rank", value, right);
        TA_TRY(add_ranks(draft, node, 1));
    }
    if (draft->cluster->ranks)
        TA_TRY(check_nodes(draft->cluster, &all));
    return all ? TA_OK : ta_cluster_bad_value(draft, "node_of_rank", value, right);
}

ta_status ta_cluster_set(ta_cluster_draft *draft, const char *key, const char *value)
{
    ta_cluster *c = draft->cluster;
    for (int i = 0; i < TA_CLUSTER_KEYS; ++i)
        if (strcmp(key, ta_cluster_keys[i].name) == 0)
            return set_number(draft, i, value);
    if (strcmp(key, "name") == 0)
        return set_text(draft, key, value, c->name, sizeof c->name);
    if (strcmp(key, "device") == 0)
        return set_text(draft, key, value, c->device, sizeof c->device);
    if (strcmp(key, "nodes") == 0)
        return ta_cluster_set_nodes(draft, value);
    if (strcmp(key, "node_of_rank") == 0)
        return set_node_of_rank(draft, value);
    if (strcmp(key, "package_of_rank") == 0 || strcmp(key, "numa_of_rank") == 0 ||
        strcmp(key, "pci_of_rank") == 0)
        return ta_cluster_set_places(draft, key, value);
    return ta_fail(TA_ERR_INVALID,
                   "%s: unknown key '%s' with the value '%s': must be name, device, nodes, "
                   "node_of_rank, package_of_rank, numa_of_rank, pci_of_rank, preset (as the "
                   "first) or a number's name such as network.latency_seconds",
                   draft->where, key, value);
}

/* In as few digits as give the same number again. */
static void write_number(ta_text *out, const char *key, double value)
{
    char text[40];
    for (int digits = 6; digits <= 17; ++digits) {
        ta_format(text, sizeof text, "%.*g", digits, value);
        if (ta_parse_number(text, NULL) == value)
            break;
    }
    ta_text_add(out, "%s = %s\n", key, text);
}

/* The ranks of a run of nodes with equally many, or 0 if the ranks are not in node order. */
static int ranks_in_order(const ta_cluster *c)
{
    for (int rank = 1; rank < c->ranks; ++rank)
        if (c->node_of[rank] < c->node_of[rank - 1])
            return 0;
    return 1;
}

static void write_nodes(const ta_cluster *c, ta_text *out)
{
    if (!ranks_in_order(c)) {
        ta_text_add(out, "node_of_rank =");
        for (int rank = 0; rank < c->ranks; ++rank)
            ta_text_add(out, " %d", c->node_of[rank]);
        ta_text_add(out, "\n");
        return;
    }
    int count = 0, each = 0;
    ta_text_add(out, "nodes =");
    for (int rank = 0; rank < c->ranks;) {
        int end = rank;
        while (end < c->ranks && c->node_of[end] == c->node_of[rank])
            ++end;
        if (count && end - rank != each) {
            ta_text_add(out, " %dx%d", count, each);
            count = 0;
        }
        each = end - rank;
        ++count;
        rank = end;
    }
    ta_text_add(out, " %dx%d\n", count, each);
}

void ta_cluster_write(const ta_cluster *cluster, ta_text *out)
{
    ta_text_add(out, "name = %s\ndevice = %s\n", cluster->name, cluster->device);
    for (int i = 0; i < TA_CLUSTER_KEYS; ++i) {
        double value;
        memcpy(&value, (const char *)cluster + ta_cluster_keys[i].offset, sizeof value);
        if (value > 0 || !ta_cluster_keys[i].optional)
            write_number(out, ta_cluster_keys[i].name, value);
    }
    write_nodes(cluster, out);
    ta_cluster_write_places(cluster, out);
}
