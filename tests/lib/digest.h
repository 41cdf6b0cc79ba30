/* The bits of all results of a test program in one number, to compare two trees: tests/digest.sh.
 * Sums, so that the order of cases does not count. Written at exit to the file that
 * TA_TEST_DIGEST names; without it nothing happens. */
#ifndef TESTS_DIGEST_H
#define TESTS_DIGEST_H

#include <stdint.h>

/* Not for several threads at once. */
void digest_add(uint64_t bits);

#endif
