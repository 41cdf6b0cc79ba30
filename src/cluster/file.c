/* Clusters from files: which files can be one, and their lines. What a path names may be anything,
 * so it is looked at before it is read, and nothing here waits or reads without end. cluster.c
 * calls it; text.c knows the keys. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "cluster.h"

/* A cluster of the most ranks has some ten bytes for each in each of its lines of places. */
#define MOST_BYTES (64 << 20)

/* Without space at either end. */
static char *trim(char *text)
{
    char *end = text + strlen(text);
    while (end > text && strchr(" \t\r\n", end[-1]))
        *--end = '\0';
    return text + strspn(text, " \t");
}

/* One line of a file; `first` until something was set. */
static ta_status read_line(ta_cluster_draft *draft, char *line, int *first)
{
    line[strcspn(line, "#")] = '\0';
    char *text = trim(line), *equals = strchr(text, '=');
    if (!*text)
        return TA_OK;
    if (!equals)
        return ta_fail(TA_ERR_INVALID, "%s: '%s' has no '=': a line must be 'key = value'",
                       draft->where, text);
    *equals = '\0';
    const char *key = trim(text), *value = trim(equals + 1);
    if (strcmp(key, "preset") != 0) {
        *first = 0;
        return ta_cluster_set(draft, key, value);
    }
    if (!*first)
        return ta_fail(TA_ERR_INVALID, "%s: preset is '%s': must come before all other keys",
                       draft->where, value);
    *first = 0;
    return ta_cluster_preset(draft, value);
}

/* Open what can be read to its end: no directory, device, pipe or socket. */
static ta_status open_file(const char *path, int *file)
{
    struct stat about;
    int opened = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); /* a pipe may block */
    if (opened < 0)
        return ta_fail(TA_ERR_NOT_FOUND, "the cluster file '%s' cannot be read: %s", path,
                       strerror(errno));
    int known = fstat(opened, &about) == 0;
    if (known && S_ISREG(about.st_mode) && about.st_size <= MOST_BYTES) {
        *file = opened;
        return TA_OK;
    }
    close(opened);
    if (known && S_ISREG(about.st_mode))
        return ta_fail(TA_ERR_INVALID, "the cluster file '%s' has %lld bytes: must have at most %d",
                       path, (long long)about.st_size, MOST_BYTES);
    return ta_fail(TA_ERR_INVALID, "the cluster file '%s' is %s: must be a regular file", path,
                   !known                    ? "not to be looked at"
                   : S_ISDIR(about.st_mode)  ? "a directory"
                   : S_ISFIFO(about.st_mode) ? "a pipe"
                   : S_ISSOCK(about.st_mode) ? "a socket"
                                             : "a device");
}

/* The whole text, with a NUL behind it. Some files of the kernel's have more than they say. */
static ta_status read_text(int file, const char *path, char **text)
{
    size_t length = 0, room = 0;
    char *data = NULL;
    ssize_t got;
    do {
        if (length + 1 >= room) {
            room = room ? 2 * room : 4096;
            char *grown = realloc(data, room);
            if (!grown) {
                free(data);
                return ta_fail(TA_ERR_NO_MEMORY, "no memory to read the cluster file '%s'", path);
            }
            data = grown;
        }
        got = read(file, data + length, room - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    } while ((got > 0 || (got < 0 && errno == EINTR)) && length <= MOST_BYTES);
    int error = errno;
    data[length] = '\0';
    if (got == 0 && strlen(data) == length) {
        *text = data;
        return TA_OK;
    }
    free(data);
    if (got < 0)
        return ta_fail(TA_ERR_SYSTEM, "the cluster file '%s' cannot be read: %s", path,
                       strerror(error));
    return ta_fail(TA_ERR_INVALID, "the cluster file '%s' %s", path,
                   got > 0 ? "does not end: must have at most 64 MiB"
                           : "has a byte of value 0: must be text");
}

static ta_status read_lines(ta_cluster_draft *draft, const char *path, char *text)
{
    int first = 1;
    for (int number = 1; *text; ++number) {
        char *end = text + strcspn(text, "\n"), *next = *end ? end + 1 : end;
        *end = '\0';
        snprintf(draft->where, sizeof draft->where, "%s:%d", path, number);
        TA_TRY(read_line(draft, text, &first));
        text = next;
    }
    snprintf(draft->where, sizeof draft->where, "%s", path);
    return TA_OK;
}

ta_status ta_cluster_read(ta_cluster_draft *draft, const char *path)
{
    int file = -1;
    char *text = NULL;
    TA_TRY(open_file(path, &file));
    ta_status status = read_text(file, path, &text);
    close(file);
    if (status == TA_OK)
        status = read_lines(draft, path, text);
    free(text);
    return status;
}
