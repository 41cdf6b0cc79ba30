/* What ranks that share memory signal to each other in a direct exchange. The signals belong to the
 * group, not to a plan: all plans of the same ranks count the same exchanges. So ranks that are in
 * steps of different plans meet here, and find it out by the fault records. exchange/direct.c has
 * the rules; signals.c makes them. */
#ifndef TA_GROUP_SIGNALS_H
#define TA_GROUP_SIGNALS_H

#include "base/fault.h"
#include "group.h"
#include "shared.h"

/* One rank's. Its fault record goes with the word that says that its partial is there, in one of
 * two places by turns. */
typedef struct ta_signal {
    _Alignas(TA_SHARED_LINE) uint32_t ready;  /* the exchange whose partial is there */
    _Alignas(16) ta_fault faults[2];          /* of an even exchange, and of an odd one */
    _Alignas(TA_SHARED_LINE) uint32_t merged; /* the exchange whose part is merged */
    _Alignas(16) ta_fault all;                /* and what the rank has heard of all nodes by then */
} ta_signal;

typedef struct ta_signals ta_signals;
struct ta_signals {
    ta_group *group;
    int count, index; /* of the ranks that share, and this one's place among them */
    int *ranks;       /* [count]: as the group numbers them */
    uint32_t epoch;   /* how many exchanges there were */
    ta_shared *shared;
    ta_signal *of; /* [count], in `shared` */
    ta_signals *next;
};

/* The signals of these ranks of the group, this one among them: those that it has, or new ones.
 * Collective over them. They go with the group. */
ta_status ta_signals_open(ta_group *group, const int *ranks, int count, ta_signals **signals);

/* Begin to count at `epoch`: for tests of counts that wrap. Nobody may be in an exchange. */
void ta_signals_start(ta_signals *signals, uint32_t epoch);

/* The last ones that were opened are of no use, since another rank has none. */
void ta_signals_drop(ta_group *group, ta_signals *signals);

/* Say that this rank's partial of the next exchange is there, with its fault record; and later that
 * its merged part is. */
void ta_signal_ready(ta_signals *signals, const ta_fault *fault);
void ta_signal_merged(ta_signals *signals, const ta_fault *all);

/* Wait until number `index` has said so. */
ta_status ta_await_ready(ta_signals *signals, int index);
ta_status ta_await_merged(ta_signals *signals, int index);

/* The fault record that came with it. */
const ta_fault *ta_signal_fault(const ta_signals *signals, int index);

#endif
