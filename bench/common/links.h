/* Emulated links: ranks that are threads of one process, each on an imagined node of its own,
 * joined by links of a given delay and rate. Rounds and bytes then cost what they would cost
 * between machines, on one machine and without root. Attending still shares this machine's
 * CPUs. */
#ifndef BENCH_LINKS_H
#define BENCH_LINKS_H

#include <treeattn/collectives.h>

#include "json.h"

/* What a message costs: its last byte arrives `delay` after the last one left, and a node sends,
 * and receives, `rate` bytes a second. */
typedef struct link_speed {
    double delay_us, bytes_per_us;
} link_speed;

/* Read "DELAY,RATE": a time in us, ms or s and bytes a second in MB/s or GB/s, such as
 * 50us,1.25GB/s; numbers alone are us and GB/s. Returns 0, or -1 with a sentence in `error`. */
int links_parse(const char *text, link_speed *speed, char *error, size_t capacity);

/* For people; and as lines of a table's header, with what shares this machine all the same. */
void links_text(const link_speed *speed, char *text, size_t capacity);
void links_print(const link_speed *speed, const char *sharing);

/* The member "link" of a JSON object. */
void links_json(json_writer *json, const link_speed *speed);

/* Collective over `threads`, a group whose ranks are threads of this process: a group of the same
 * ranks whose messages go through links. *context is freed by links_destroy(), after the group. */
ta_status links_create(ta_group *threads, const link_speed *speed, ta_group **group,
                       void **context);
void links_destroy(void *context);

#endif
