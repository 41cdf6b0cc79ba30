/* The label of a call: what it is, in 64 bits that go with every message of a group of host memory.
 * A receiver that is in another call finds out, and can say which. collectives.c makes them; the
 * engines compare them. Modules include it too, so it is a header alone. */
#ifndef TA_GROUP_LABEL_H
#define TA_GROUP_LABEL_H

#include <stdio.h>

#include <treeattn/collectives.h>

typedef enum ta_label_call {
    TA_LABEL_NONE, /* not one of these: a step of a plan, say */
    TA_LABEL_ALL_REDUCE,
    TA_LABEL_ALL_GATHER,
    TA_LABEL_REDUCE_SCATTER,
    TA_LABEL_BROADCAST,
    TA_LABEL_BARRIER,
    TA_LABEL_RESHARD,
    TA_LABEL_CALLS
} ta_label_call;

/* From the lowest bit: call 4, element 4, reduction 4, root 20, count 32. */
static inline uint64_t ta_label(ta_label_call call, ta_element_kind element, ta_reduction reduction,
                                int root, size_t count)
{
    return (uint64_t)call | (uint64_t)element << 4 | (uint64_t)reduction << 8 |
           ((uint64_t)(uint32_t)root & 0xfffff) << 12 | (uint64_t)count << 32;
}

#define TA_LABEL_TEXT 96

/* "ta_all_reduce (sum of 100 f32)". */
static inline void ta_label_text(uint64_t label, char text[TA_LABEL_TEXT])
{
    static const char *const calls[TA_LABEL_CALLS] = {
        "another call", "ta_all_reduce", "ta_all_gather", "ta_reduce_scatter",
        "ta_broadcast", "ta_barrier",    "ta_reshard"};
    static const char *const elements[] = {"bytes", "f32", "f16", "bf16", "i32", "i64"};
    unsigned call = label & 15, element = label >> 4 & 15, reduction = label >> 8 & 15;
    unsigned root = label >> 12 & 0xfffff, count = (unsigned)(label >> 32);
    const char *kind = element < 6 ? elements[element] : "?";
    if (call == TA_LABEL_ALL_REDUCE || call == TA_LABEL_REDUCE_SCATTER)
        snprintf(text, TA_LABEL_TEXT, "%s (%s of %u %s)", calls[call],
                 reduction == TA_REDUCE_SUM ? "sum" : "maximum", count, kind);
    else if (call == TA_LABEL_ALL_GATHER)
        snprintf(text, TA_LABEL_TEXT, "%s (%u %s each)", calls[call], count, kind);
    else if (call == TA_LABEL_BROADCAST)
        snprintf(text, TA_LABEL_TEXT, "%s (%u %s from rank %u)", calls[call], count, kind, root);
    else
        snprintf(text, TA_LABEL_TEXT, "%s", calls[call < TA_LABEL_CALLS ? call : 0]);
}

#define TA_LABEL_SENTENCE 320

/* The sentence of an error: two ranks that are in different calls. */
static inline void ta_label_difference(int rank, uint64_t label, int other, uint64_t others,
                                       char sentence[TA_LABEL_SENTENCE])
{
    char own[TA_LABEL_TEXT], theirs[TA_LABEL_TEXT];
    ta_label_text(label, own);
    ta_label_text(others, theirs);
    snprintf(sentence, TA_LABEL_SENTENCE,
             "rank %d is in %s and rank %d in %s: the ranks are not in the same call", rank, own,
             other, theirs);
}

#endif
