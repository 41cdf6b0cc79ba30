/* A cluster as data: where the ranks are, how fast they reach each other and their own memory. What
 * the cost model (cost.h) computes with. Made by cluster.c from a preset's name or a text file
 * (file.c and text.c read it, text.c writes it, presets.c has the presets), or measured by
 * probe.c; read-only afterwards. docs/model.md explains the numbers. */
#ifndef TA_CLUSTER_H
#define TA_CLUSTER_H

#include <treeattn/cluster.h>

#include "base/text.h"
#include "device/place.h"

#define TA_CLUSTER_MAX_RANKS (1 << 20)

/* The links between two ranks, by the smallest unit that holds both. */
typedef enum ta_level_kind {
    TA_LEVEL_NODE,    /* both on one node */
    TA_LEVEL_NETWORK, /* on two nodes of one rack */
    TA_LEVEL_RACK,    /* in two racks */
    TA_LEVEL_PACKAGE, /* both in one package of a node; only with places and numbers for it */
    TA_LEVEL_COUNT
} ta_level_kind;

typedef struct ta_level {
    double latency_s;         /* of a message, from the call to its arrival, without its bytes */
    double rank_bytes_per_s;  /* one rank alone, each way */
    double total_bytes_per_s; /* all ranks of a node (rack, package) together */
    /* A larger message than this is announced first, which takes so long; 0: none is. */
    double eager_bytes, handshake_s;
} ta_level;

struct ta_cluster {
    char name[64], device[64];
    double memory_bytes;       /* of one device */
    double memory_bytes_per_s; /* that one device reads */
    double kernel_s;           /* to start one piece of work on a device */
    double flops_per_s[2];     /* that one device computes: f32, and f16 or bf16; 0: not known */
    double nics_per_node;      /* whole; they share total_bytes_per_s evenly */
    double nodes_per_rack;     /* whole; 0: all nodes are in one rack */
    ta_level levels[TA_LEVEL_COUNT];
    /* Inside a node, without messages: all of its ranks tell each other that something is there,
     * and see it; what one rank reads of another's memory. 0: they do not address it. */
    double signal_s, read_bytes_per_s;
    int ranks, nodes;
    int *node_of; /* [ranks] */
    /* Inside the nodes, if anything is known. */
    ta_place *places; /* [ranks] */
    int *package_of;  /* [ranks]: numbered over all nodes; -1: not known */
    int packages;
};

/* The level of the links between two ranks. */
ta_level_kind ta_cluster_level(const ta_cluster *cluster, int a, int b);

/* Do links inside a package have numbers of their own? */
int ta_cluster_has_packages(const ta_cluster *cluster);

/* Can ranks of a node read each other's memory, as far as is known? */
int ta_cluster_shares_memory(const ta_cluster *cluster);
/* Bytes that a rank reads of another's memory in the time of a signal; 0: not known, or NULL. */
double ta_cluster_signal_bytes(const ta_cluster *cluster);

/* What two-level exchanges take for nodes, a number for each rank: nodes; on one node its
 * packages, if each rank's is known and they are a level. NULL without a cluster. */
const int *ta_cluster_units(const ta_cluster *cluster);

/* The rack of a node. */
int ta_cluster_rack(const ta_cluster *cluster, int node);

/* Numbers of a cluster that are given by name, in the order in which they are written. */
typedef struct ta_cluster_key {
    const char *name;
    size_t offset; /* of the double in ta_cluster */
    double low, high;
    int whole;         /* no fraction */
    int optional;      /* 0 if it is not given */
    const char *right; /* what a value must be */
} ta_cluster_key;

#define TA_CLUSTER_KEYS 29
extern const ta_cluster_key ta_cluster_keys[TA_CLUSTER_KEYS];

/* A cluster on its way from text: which keys were given, and what errors call the text. */
typedef struct ta_cluster_draft {
    ta_cluster *cluster;
    unsigned given; /* bit i: ta_cluster_keys[i] */
    char where[256];
    int rank_room; /* ranks that fit into cluster->node_of */
} ta_cluster_draft;

/* description.c: fill in what a description says. */
ta_status ta_cluster_describe(ta_cluster_draft *draft, const char *description);

/* presets.c: fill in the preset of this name; fails with the list of names. */
ta_status ta_cluster_preset(ta_cluster_draft *draft, const char *name);

/* text.c: set one key. `value` is what stood behind the `=`, without space around it. */
ta_status ta_cluster_set(ta_cluster_draft *draft, const char *key, const char *value);
/* The ranks as items COUNTxRANKS: so many nodes with so many ranks each, in rank order. */
ta_status ta_cluster_set_nodes(ta_cluster_draft *draft, const char *value);
ta_status ta_cluster_bad_value(const ta_cluster_draft *draft, const char *key, const char *value,
                               const char *right);
/* The next word of a line, from *at on; 0 at the end. One that does not fit is given as "". */
int ta_cluster_next_word(const char **at, char *word, size_t capacity);
void ta_cluster_write(const ta_cluster *cluster, ta_text *out);

/* file.c: the keys of a file. */
ta_status ta_cluster_read(ta_cluster_draft *draft, const char *path);

/* places.c: places that are not known yet; none; a line for each kind of them. */
ta_status ta_cluster_add_places(ta_cluster *cluster);
void ta_cluster_free_places(ta_cluster *cluster);
ta_status ta_cluster_set_places(ta_cluster_draft *draft, const char *key, const char *value);
void ta_cluster_write_places(const ta_cluster *cluster, ta_text *out);
/* Fill in package_of and packages from the places. */
ta_status ta_cluster_number_packages(ta_cluster *cluster);

/* rate.c: seconds of one operation of attention in this dtype; 0 if it cannot be told. */
ta_status ta_cluster_time_attention(ta_device *device, ta_dtype dtype, double *flop_s);

/* cluster.c: is everything there and does it agree? */
ta_status ta_cluster_check(ta_cluster_draft *draft);

#endif
