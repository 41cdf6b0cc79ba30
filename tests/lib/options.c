/* The arguments of the test programs: see options.h. */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

test_options options = {.device = "host", .every = 1};

static int left_out;

static void set_seed(const char *text)
{
    options.one_seed = true;
    options.seed = strtoull(text, NULL, 0);
}

static bool set_algorithm(const char *text)
{
    static const char *const names[] = {"auto", "tree", "ring-kv", "ring-q"};
    for (int i = 0; i < 4; ++i)
        if (!strcmp(text, names[i])) {
            options.algorithm = (ta_algorithm)i;
            return true;
        }
    return false;
}

bool options_read(int argc, char **argv)
{
    const char *device = getenv("TA_TEST_DEVICE"), *seed = getenv("TA_TEST_SEED");
    if (device && *device)
        options.device = device;
    if (seed && *seed)
        set_seed(seed);
    for (int i = 1; i < argc; i += 2) { /* a flag and its value */
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (value && !strcmp(argv[i], "--seed"))
            set_seed(value);
        else if (value && !strcmp(argv[i], "--cases"))
            options.cases = atoi(value);
        else if (value && !strcmp(argv[i], "--every") && atoi(value) > 0)
            options.every = atoi(value);
        else if (value && !strcmp(argv[i], "--ranks") && atoi(value) > 0)
            options.ranks = atoi(value);
        else if (value && !strcmp(argv[i], "--device"))
            options.device = value;
        else if (value && !strcmp(argv[i], "--group") &&
                 (!strcmp(value, "threads") || !strcmp(value, "ccl") || !strcmp(value, "each"))) {
            options.ccl = !strcmp(value, "ccl");
            options.each = !strcmp(value, "each");
        } else if (value && !strcmp(argv[i], "--exchange") && !strcmp(value, "direct"))
            options.direct = true;
        else if (!value || strcmp(argv[i], "--algorithm") != 0 || !set_algorithm(value)) {
            fprintf(stderr,
                    "usage: %s [--seed N] [--cases N] [--every N] [--device NAME] "
                    "[--group threads|ccl|each] [--ranks N] [--algorithm tree|ring-kv|ring-q] "
                    "[--exchange direct]\n",
                    argv[0]);
            return false;
        }
    }
    return true;
}

bool options_chosen(uint64_t number)
{
    return (number * 0x9e3779b97f4a7c15u >> 33) % (unsigned)options.every == 0;
}

bool options_host(void)
{
    return !strcmp(options.device, "host");
}

bool options_direct(void)
{
    return (options.ccl || options.each || options_host()) && !options.messages;
}

ta_exchange options_exchange(ta_exchange drawn)
{
    return options.direct ? TA_EXCHANGE_DIRECT : drawn;
}

bool options_ranks(int ranks)
{
    bool fits = options.ranks == 0 || ranks <= options.ranks;
    left_out += !fits;
    return fits;
}

void options_left_out(void)
{
    if (left_out)
        printf("left out: %d cases of more than %d ranks\n", left_out, options.ranks);
}
