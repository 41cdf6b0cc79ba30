/* Which directories code may be loaded from when a variable of the environment names them: whoever
 * can write there decides what this program runs. The loader of modules and hip/ccl/library.c ask.
 * In a set-uid program the variables are not read at all: secure_getenv(). */
#ifndef TA_TRUST_H
#define TA_TRUST_H

#include <stddef.h>
#include <sys/stat.h>

#include "inline.h"

/* Why nothing is loaded from a directory; NULL: it may be, or it is not there. */
TA_INLINE const char *ta_untrusted(const char *directory)
{
    struct stat about;
    if (directory[0] != '/')
        return "it is not an absolute path";
    if (stat(directory, &about) == 0 && (about.st_mode & S_IWOTH))
        return "every user may write there";
    return NULL;
}

#endif
