/* Who is next to a rank when the ranks stand in a circle. Rings and rotations of decode and
 * attention send to the next and receive from the previous. */
#ifndef TA_NEIGHBORS_H
#define TA_NEIGHBORS_H

static inline int ta_next_rank(int rank, int ranks)
{
    return (rank + 1) % ranks;
}

static inline int ta_previous_rank(int rank, int ranks)
{
    return (rank + ranks - 1) % ranks;
}

#endif
