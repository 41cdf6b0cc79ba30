/* The explanation of a plan as text and as JSON, for the tests that keep them in files (golden.h).
 * The JSON is read and must add up (explanation.h); what kernels need changes with them, so it must
 * be the plan's and is not kept. */
#ifndef TESTS_EXPLAINED_H
#define TESTS_EXPLAINED_H

#include <stdlib.h>

#include <treeattn/cluster.h>

#include "expect.h"
#include "explanation.h"
#include "golden.h"

typedef struct explained {
    const void *scene;   /* that a test runs */
    ta_cluster *cluster; /* of it, or NULL */
    char text[20000], json[40000];
    size_t text_bytes, json_bytes; /* as the calls told */
    const char *fault;             /* of the JSON; NULL: none */
    int candidates;
} explained;

/* A cluster from its description, in which FOLDER is where the clusters of the tests are. */
static inline ta_cluster *explained_cluster(const char *description)
{
    static const char folder[] = "FOLDER";
    const char *clusters = getenv("TA_TEST_CLUSTERS");
    char path[512];
    ta_cluster *cluster = NULL;
    if (!description)
        return NULL;
    int is_file = strncmp(description, folder, strlen(folder)) == 0;
    snprintf(path, sizeof path, "%s%s", is_file ? clusters ? clusters : "tests/clusters" : "",
             is_file ? description + strlen(folder) : description);
    EXPECT_OK(ta_cluster_create(path, &cluster));
    return cluster;
}

/* Run a scene on so many ranks; `rank` is given `e` and lets rank 0 fill it in. */
static inline void explained_run(explained *e, const void *scene, int ranks, const char *cluster,
                                 ta_status (*rank)(ta_group *group, void *e))
{
    e->scene = scene;
    e->cluster = explained_cluster(cluster);
    EXPECT_OK(ranks == 1 ? rank(NULL, e) : ta_group_run_threads(ranks, NULL, rank, e));
    ta_cluster_destroy(e->cluster);
}

/* After both calls, with what a plan's workspace has. */
static inline ta_status explained_check(explained *e, size_t workspace_bytes)
{
    RANK_EXPECT(e->text_bytes == strlen(e->text) + 1 && e->text_bytes < sizeof e->text);
    RANK_EXPECT(e->json_bytes == strlen(e->json) + 1 && e->json_bytes < sizeof e->json);
    e->fault = explanation_fault(e->json, &e->candidates);
    RANK_EXPECT(golden_hide(e->text, workspace_bytes, ' '));
    RANK_EXPECT(golden_hide(e->json, workspace_bytes, ','));
    return TA_OK;
}

/* Compare both with their sections. Plans that were changed by hand (`changed`) need not add up,
 * and their JSON is not kept. */
static inline void explained_expect(golden *g, const char *name, const explained *e,
                                    int has_cluster, int changed)
{
    char section[200];
    golden_expect(g, name, e->text);
    if (changed)
        return;
    snprintf(section, sizeof section, "%s, as JSON", name);
    golden_expect(g, section, e->json);
    snprintf(section, sizeof section, "%s: %.100s", name, e->fault ? e->fault : "");
    TEST_ASSERT_NULL_MESSAGE(e->fault, section);
    TEST_ASSERT_EQUAL_INT_MESSAGE(has_cluster, e->candidates > 0, section);
}

/* A scene and its sections: all of it. */
static inline void explained_keep(golden *g, const void *scene, const char *name, int ranks,
                                  const char *cluster, int changed,
                                  ta_status (*rank)(ta_group *group, void *e))
{
    static explained e;
    explained_run(&e, scene, ranks, cluster, rank);
    explained_expect(g, name, &e, cluster != NULL, changed);
}

#endif
