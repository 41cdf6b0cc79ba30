/* Devices in words; see device_text.h. The tables of decode and attention print it. */
#include "device_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/treeattn.h>

void device_product(const char *name, char *text, size_t capacity)
{
    size_t bytes = 0, length = strlen(name);
    char *info = NULL;
    text[0] = '\0';
    if (ta_info(NULL, 0, &bytes) != TA_OK || !(info = malloc(bytes)) ||
        ta_info(info, bytes, NULL) != TA_OK) {
        free(info);
        return;
    }
    for (char *rest = info, *line; (line = strsep(&rest, "\n")) != NULL;)
        if (strncmp(line, name, length) == 0 && strncmp(line + length, ": ", 2) == 0)
            snprintf(text, capacity, "%s", line + length + 2);
    free(info);
}

void device_found(const char *asked, char *name, size_t capacity)
{
    ta_device *device = NULL;
    if (strcmp(asked, "auto") == 0 && ta_device_open(asked, NULL, &device) == TA_OK)
        asked = ta_device_name(device);
    snprintf(name, capacity, "%s", asked);
    ta_device_close(device);
}

void device_text(const char *asked, char *text, size_t capacity)
{
    char name[48], product[160];
    device_found(asked, name, sizeof name);
    device_product(name, product, sizeof product);
    if (strcmp(name, asked) == 0)
        snprintf(text, capacity, "%s", asked);
    else if (strcmp(name, "host") == 0)
        snprintf(text, capacity,
                 "host, by auto: no GPU can be used, 'treeattn-bench info' says why");
    else
        snprintf(text, capacity, "%s (%s), by auto", name, product);
}
