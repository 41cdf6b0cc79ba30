/* Between the files of the engine for threads: threads.c has the messages, the waits and the table,
 * threads_split.c and threads_shared.c these. */
#ifndef TA_GROUP_THREADS_H
#define TA_GROUP_THREADS_H

#include "group.h"

ta_status ta_threads_split(ta_group *group, int color, int key, ta_group **part);

ta_status ta_threads_share(ta_group *group, const int *ranks, int count, size_t bytes,
                           struct ta_shared **shared);

#endif
