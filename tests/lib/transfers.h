/* What transports of the tests know of their transfers (ta_transfer). */
#ifndef TESTS_TRANSFERS_H
#define TESTS_TRANSFERS_H

#include <treeattn/collectives.h>

/* Those of one channel, peer and direction go one after the other: does an earlier one of the list
 * have to be done first? */
static inline int transfer_is_blocked(ta_transfer *const *transfers, int index)
{
    const ta_transfer *t = transfers[index];
    for (int i = 0; i < index; ++i)
        if (transfers[i]->peer == t->peer && transfers[i]->channel == t->channel &&
            transfers[i]->sends == t->sends && transfers[i]->moved < transfers[i]->bytes)
            return 1;
    return 0;
}

/* Do all have what a transport may rely on? */
static inline int transfers_are_right(ta_transfer *const *transfers, int count)
{
    for (int i = 0; i < count; ++i)
        if ((transfers[i]->sends != 0 && transfers[i]->sends != 1) || !transfers[i]->data ||
            transfers[i]->bytes == 0)
            return 0;
    return 1;
}

#endif
