/* Which SIMD levels there are, best first, and which of them this CPU has. A new level is a new file
 * with a table, and one line here. */
#include "kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "../device.h"

static bool always(void)
{
    return true;
}

static const struct level {
    const ta_host_kernels *kernels;
    bool (*available)(void);
    const char *and_below; /* the names of this level and all below it */
} levels[] = {
    {&ta_kernels_scalar, always, "scalar"},
};

static const struct level *find(const char *name)
{
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (levels[i].available() && (!name || strcmp(levels[i].kernels->name, name) == 0))
            return &levels[i];
    }
    return NULL;
}

const ta_host_kernels *ta_host_kernels_find(const char *name)
{
    const struct level *level = find(name);
    return level ? level->kernels : NULL;
}

const char *ta_host_simd_levels(void)
{
    return find(NULL)->and_below;
}
