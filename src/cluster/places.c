/* The places of ranks inside their nodes as part of a cluster: their lines in its text, and
 * packages as a level of links. find.c finds places, text.c has the other lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "cluster.h"

#define MAX_PACKAGE 1023

ta_status ta_cluster_add_places(ta_cluster *cluster)
{
    if (cluster->places)
        return TA_OK;
    cluster->places = calloc((size_t)cluster->ranks, sizeof *cluster->places);
    if (!cluster->places)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the places of %d ranks", cluster->ranks);
    for (int rank = 0; rank < cluster->ranks; ++rank)
        cluster->places[rank] = (ta_place){.package = -1, .numa = -1};
    return TA_OK;
}

void ta_cluster_free_places(ta_cluster *cluster)
{
    free(cluster->places);
    free(cluster->package_of);
    cluster->places = NULL;
    cluster->package_of = NULL;
    cluster->packages = 0;
}

/* One rank's word of a line; 0 if it is not right. */
static int read_word(const char *key, const char *word, ta_place *place)
{
    int number = -1, length = 0;
    unsigned domain, bus, slot, function;
    int unknown = strcmp(word, "-") == 0;
    if (strcmp(key, "pci_of_rank") == 0) {
        if (!unknown &&
            (strlen(word) >= TA_PCI_BYTES || word[strspn(word, "0123456789abcdefABCDEF:.")] ||
             sscanf(word, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &length) != 4 ||
             word[length]))
            return 0;
        snprintf(place->pci, sizeof place->pci, "%.15s", unknown ? "" : word);
        return 1;
    }
    if (!unknown && (sscanf(word, "%4d%n", &number, &length) != 1 || word[length] || number < 0 ||
                     number > MAX_PACKAGE))
        return 0;
    *(strcmp(key, "numa_of_rank") == 0 ? &place->numa : &place->package) = number;
    return 1;
}

ta_status ta_cluster_set_places(ta_cluster_draft *draft, const char *key, const char *value)
{
    ta_cluster *c = draft->cluster;
    char word[32], right[128];
    int rank = 0;
    TA_TRY(ta_cluster_add_places(c));
    for (const char *at = value; ta_cluster_next_word(&at, word, sizeof word); ++rank)
        if (rank >= c->ranks || !read_word(key, word, &c->places[rank]))
            rank = c->ranks; /* too many from here on, so it is refused below */
    if (rank == c->ranks && rank > 0)
        return TA_OK;
    snprintf(right, sizeof right,
             "%s for each of the %d ranks, or -, in a line behind nodes or node_of_rank",
             strcmp(key, "pci_of_rank") == 0 ? "an address such as 0000:17:00.0"
                                             : "a number from 0 to 1023",
             c->ranks);
    return ta_cluster_bad_value(draft, key, value, right);
}

static void write_line(const ta_cluster *c, const char *key, int numa, ta_text *out)
{
    int known = 0;
    for (int rank = 0; rank < c->ranks; ++rank)
        known |= (numa ? c->places[rank].numa : c->places[rank].package) >= 0;
    if (!known)
        return;
    ta_text_add(out, "%s =", key);
    for (int rank = 0; rank < c->ranks; ++rank) {
        int number = numa ? c->places[rank].numa : c->places[rank].package;
        if (number < 0)
            ta_text_add(out, " -");
        else
            ta_text_add(out, " %d", number);
    }
    ta_text_add(out, "\n");
}

void ta_cluster_write_places(const ta_cluster *c, ta_text *out)
{
    int known = 0;
    if (!c->places)
        return;
    write_line(c, "package_of_rank", 0, out);
    write_line(c, "numa_of_rank", 1, out);
    for (int rank = 0; rank < c->ranks; ++rank)
        known |= *c->places[rank].pci;
    if (!known)
        return;
    ta_text_add(out, "pci_of_rank =");
    for (int rank = 0; rank < c->ranks; ++rank)
        ta_text_add(out, " %s", *c->places[rank].pci ? c->places[rank].pci : "-");
    ta_text_add(out, "\n");
}

/* A rank with its package, to bring those of one package together. */
typedef struct member {
    int node, package, rank;
} member;

static int compare_members(const void *left, const void *right)
{
    const member *a = left, *b = right;
    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    if (a->package != b->package)
        return a->package < b->package ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* Give each rank the lowest rank of its package, or -1. */
static void find_lowest(const ta_cluster *c, member *members, int *lowest_of)
{
    int count = 0;
    for (int rank = 0; rank < c->ranks; ++rank) {
        lowest_of[rank] = -1;
        if (c->places[rank].package >= 0)
            members[count++] = (member){c->node_of[rank], c->places[rank].package, rank};
    }
    qsort(members, (size_t)count, sizeof *members, compare_members);
    for (int i = 0; i < count; ++i) {
        int same = i > 0 && members[i].node == members[i - 1].node &&
                   members[i].package == members[i - 1].package;
        lowest_of[members[i].rank] = same ? lowest_of[members[i - 1].rank] : members[i].rank;
    }
}

ta_status ta_cluster_number_packages(ta_cluster *c)
{
    if (!c->places)
        return TA_OK;
    member *members = calloc((size_t)c->ranks, sizeof *members);
    int *package_of = calloc((size_t)c->ranks, sizeof *package_of);
    if (!members || !package_of) {
        free(members);
        free(package_of);
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the packages of %d ranks", c->ranks);
    }
    find_lowest(c, members, package_of);
    c->packages = 0;
    for (int rank = 0; rank < c->ranks; ++rank) { /* those before it have their numbers already */
        int lowest = package_of[rank];
        if (lowest >= 0)
            package_of[rank] = lowest == rank ? c->packages++ : package_of[lowest];
    }
    free(members);
    free(c->package_of);
    c->package_of = package_of;
    return TA_OK;
}

int ta_cluster_has_packages(const ta_cluster *cluster)
{
    return cluster->package_of && cluster->levels[TA_LEVEL_PACKAGE].rank_bytes_per_s > 0;
}

int ta_cluster_shares_memory(const ta_cluster *cluster)
{
    return cluster->signal_s > 0 && cluster->read_bytes_per_s > 0;
}

double ta_cluster_signal_bytes(const ta_cluster *cluster)
{
    return cluster ? cluster->signal_s * cluster->read_bytes_per_s : 0;
}

const int *ta_cluster_units(const ta_cluster *cluster)
{
    if (!cluster || cluster->nodes > 1 || !ta_cluster_has_packages(cluster))
        return cluster ? cluster->node_of : NULL;
    for (int rank = 0; rank < cluster->ranks; ++rank)
        if (cluster->package_of[rank] < 0)
            return cluster->node_of;
    return cluster->package_of;
}
