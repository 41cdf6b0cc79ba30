/* See devices.h: whatever opens is there. */
#include "devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/treeattn.h>

static void add_reason(device_list *list, const char *name)
{
    size_t used = strlen(list->why);
    snprintf(list->why + used, sizeof list->why - used, "%s%s: %s", used ? "\n" : "", name,
             ta_last_error());
}

static int opens(const char *name)
{
    ta_device *device;
    if (ta_device_open(name, NULL, &device) != TA_OK)
        return 0;
    ta_device_close(device);
    return 1;
}

/* Open NAME:0, NAME:1, … until one is not there. */
static void add_kind(device_list *list, const char *kind)
{
    int first = list->count;
    for (int number = 0; list->count < DEVICES_MOST; number++) {
        char *name = list->names[list->count];
        snprintf(name, DEVICE_NAME, "%s:%d", kind, number);
        if (!opens(name)) {
            if (number == 0)
                add_reason(list, kind);
            break;
        }
        list->first_of_kind[list->count++] = number == 0;
    }
    for (int i = first; i < list->count; i++)
        list->kind_count[i] = list->count - first;
}

static void add_one(device_list *list, const char *name)
{
    if (!opens(name)) {
        add_reason(list, name);
        return;
    }
    snprintf(list->names[list->count], DEVICE_NAME, "%s", name);
    list->kind_count[list->count] = list->first_of_kind[list->count] = 1;
    list->count++;
}

void devices_find(const char *wanted, device_list *list)
{
    memset(list, 0, sizeof *list);
    if (strcmp(wanted, "auto") == 0) {
        add_kind(list, "cuda");
        add_kind(list, "rocm");
    } else if (strchr(wanted, ':') || strcmp(wanted, "host") == 0) {
        add_one(list, wanted);
    } else {
        add_kind(list, wanted);
    }
}

/* Add the directory of a line "module NAME: /DIRECTORY/FILE, …" to a list with colons. */
static void add_directory(const char *line, char *list, size_t capacity)
{
    const char *path = strncmp(line, "module ", 7) == 0 ? strstr(line, ": /") : NULL;
    const char *end = path ? strchr(path, ',') : NULL;
    const char *slash = end ? memrchr(path, '/', (size_t)(end - path)) : NULL;
    size_t used = strlen(list);
    if (slash)
        snprintf(list + used, capacity - used, "%s%.*s", used ? ":" : "", (int)(slash - path - 2),
                 path + 2);
}

void devices_share_modules(void)
{
    char list[4000] = "", *info = NULL;
    size_t bytes = 0;
    if (ta_info(NULL, 0, &bytes) != TA_OK || (info = malloc(bytes)) == NULL ||
        ta_info(info, bytes, NULL) != TA_OK)
        goto free_info;
    for (char *rest = info, *line; (line = strsep(&rest, "\n")) != NULL;)
        add_directory(line, list, sizeof list);
    if (*list)
        setenv("TREEATTN_MODULE_PATH", list, 1);

free_info:
    free(info);
}
