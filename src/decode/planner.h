/* The planner: which algorithm and exchange a plan uses, what the other ways would cost, and
 * whether sharding pays at all. plan.c asks it; explain.c prints it. Implemented in planner.c. */
#ifndef TA_PLANNER_H
#define TA_PLANNER_H

#include "group/group.h"
#include "predict.h"

typedef struct ta_choice {
    ta_algorithm wanted_algorithm; /* what the config asks for */
    ta_algorithm algorithm;
    ta_exchange wanted;
    ta_exchange exchange;   /* of the tree */
    ta_nodes nodes;         /* where the ranks are, if there is a cluster */
    char not_possible[160]; /* why a cheaper exchange was given up when the plan was made; or "" */
    ta_candidates candidates; /* by ta_way, if there is a cluster */
} ta_choice;

/* Decide for this work. `algorithm` and `wanted` are what the config asks for; an exchange that is
 * asked for is a tree's. Local; free it with ta_choice_free(). */
ta_status ta_planner_choose(const ta_step_shape *shape, ta_algorithm algorithm, ta_exchange wanted,
                            ta_choice *choice);

/* All ranks take over what rank 0 decided. Collective; a rank that could not decide, because its
 * config is wrong, takes part with that status. */
ta_status ta_planner_follow(ta_group *group, ta_choice *choice, ta_status status);

/* What was chosen turned out to be impossible on these ranks, as `why` says: choose again without
 * it, unless the config asks for it. Collective. */
ta_status ta_planner_without(ta_group *group, const ta_step_shape *shape, ta_exchange kind,
                             const char *why, ta_choice *choice);

/* What rank 0 then chooses. Local. */
ta_status ta_planner_choose_without(const ta_step_shape *shape, ta_exchange kind,
                                    ta_choice *choice);

void ta_choice_free(ta_choice *choice);

/* The faster ring; NULL if nothing was predicted. */
const ta_candidate *ta_choice_ring(const ta_choice *choice);

/* Is it cheaper to leave the cache on one device, and does it fit there? */
int ta_choice_one_device_is_cheaper(const ta_choice *choice);

#endif
