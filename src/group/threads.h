/* Between the two files of the engine for threads: threads.c has the messages and the table,
 * threads_split.c this. */
#ifndef TA_GROUP_THREADS_H
#define TA_GROUP_THREADS_H

#include "group.h"

ta_status ta_threads_split(ta_group *group, int color, int key, ta_group **part);

#endif
