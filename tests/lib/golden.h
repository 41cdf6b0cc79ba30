/* Texts that are kept word for word in files of tests/explain: a file has sections, each a line
 * "=== name" and the text. Words must be the same; numbers with a point or an exponent may differ
 * in the seventh digit, where compilers do. After a change that is meant, TA_GOLDEN_WRITE=1 in the
 * environment writes the files again; read the difference before committing it. */
#ifndef TESTS_GOLDEN_H
#define TESTS_GOLDEN_H

#include <stdio.h>

typedef struct golden {
    char path[512];
    char *kept;    /* the file */
    FILE *written; /* in place of comparing; else NULL */
    int sections;  /* that were compared or written */
} golden;

/* A file of the folder TA_TEST_EXPLAIN, or tests/explain. */
void golden_open(golden *g, const char *file);

/* Fails the test, and shows the first line that differs. */
void golden_expect(golden *g, const char *name, const char *text);

/* Put an N in place of a number that the file need not keep: the first one in the text, which is
 * followed by `after`. Returns 0 if it is not there. */
int golden_hide(char *text, size_t number, char after);

/* Fails if the file has sections that nobody asked for. */
void golden_close(golden *g);

#endif
