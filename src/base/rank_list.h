/* Ranks as errors name them: "rank 1", "ranks 1 and 2", "ranks 1, 2, 3, 4 and 60 more". Used by the
 * engines of group/, of which one is a module: hence a header alone. */
#ifndef TA_RANK_LIST_H
#define TA_RANK_LIST_H

#include <stddef.h>
#include <stdio.h>

/* The most that are named, and room for the longest such text. */
#define TA_RANK_LIST_MOST 8
#define TA_RANK_LIST_BYTES 128

/* Write the ranks whose mark is `wanted`, of [ranks]; returns how many there are. */
static inline int ta_rank_list(char text[TA_RANK_LIST_BYTES], const char *marks, char wanted,
                               int ranks)
{
    int count = 0, named = 0, length;
    for (int rank = 0; rank < ranks; ++rank)
        count += marks[rank] == wanted;
    int most = count > TA_RANK_LIST_MOST ? TA_RANK_LIST_MOST - 1 : count;
    length = snprintf(text, TA_RANK_LIST_BYTES, count == 1 ? "rank" : "ranks");
    for (int rank = 0; rank < ranks && named < most; ++rank) {
        if (marks[rank] != wanted)
            continue;
        const char *before = named == 0 ? " " : named + 1 == count ? " and " : ", ";
        length +=
            snprintf(text + length, TA_RANK_LIST_BYTES - (size_t)length, "%s%d", before, rank);
        ++named;
    }
    if (named < count)
        snprintf(text + length, TA_RANK_LIST_BYTES - (size_t)length, " and %d more", count - named);
    return count;
}

#endif
