/* For a program that asks for more memory than there is: under a sanitizer too, such an allocation
 * returns NULL. Included by one file of the program; the sanitizers call these. */
#ifndef TESTS_LARGE_ALLOCATION_H
#define TESTS_LARGE_ALLOCATION_H

const char *__asan_default_options(void);
const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

#endif
