/* Memory that some ranks of a group can all address, and words in it by which they tell each other
 * that something is there: what a direct exchange stands on. The engines implement the slots share,
 * await and wake of group.h; signals.h has what ranks signal in it, exchange/direct.c uses both.
 *
 * Words are written by one rank each and only ever stored to and loaded from, never changed in
 * place. They count, and may wrap: a rank is never half of 2^32 behind. Modules include this
 * file. */
#ifndef TA_GROUP_SHARED_H
#define TA_GROUP_SHARED_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

/* What two ranks write is on different lines of this many bytes: CPUs fetch lines in pairs. */
#define TA_SHARED_LINE 128

typedef struct ta_shared ta_shared;
struct ta_shared {
    void *memory; /* aligned to TA_SHARED_LINE; zero at first */
    size_t bytes;
    /* This rank's use of it ends. Waits for nobody: the memory goes when the last rank is done. */
    void (*release)(ta_shared *shared);
};

/* Has a word come to `epoch`? If so, what its writer wrote before it set it can be read. More than
 * an acquire and a release: who sets a word looks next whether somebody sleeps, and who falls
 * asleep looks at the word last. */
static inline int ta_word_reached(const uint32_t *word, uint32_t epoch)
{
    return (int32_t)(__atomic_load_n(word, __ATOMIC_SEQ_CST) - epoch) >= 0;
}

static inline void ta_word_set(uint32_t *word, uint32_t epoch)
{
    __atomic_store_n(word, epoch, __ATOMIC_SEQ_CST);
}

#endif
