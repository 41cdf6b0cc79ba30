/* Mutexes that a thread gives back, or waits with, without having taken them. POSIX leaves open
 * what that does, and most systems pass over it, so that a lock that is missing shows in no result.
 * In a program that links paired_locks.c calls come by here: with wrap_locks (meson.build) those
 * of the library, with interpose_locks those of modules too. */
#ifndef TESTS_PAIRED_LOCKS_H
#define TESTS_PAIRED_LOCKS_H

/* How often any thread did so, since the program began. */
int paired_locks_wrong(void);

#endif
