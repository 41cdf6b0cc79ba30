/* The rounds of a tree: the smallest number of doublings that reaches n. */
#ifndef TESTS_CEIL_LOG2_H
#define TESTS_CEIL_LOG2_H

static inline int ceil_log2(int n)
{
    int log = 0;
    while ((1 << log) < n)
        ++log;
    return log;
}

#endif
