/* See suites.h. The programs are the library's own tests, which CI runs on the CPU. */
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const selftest_suite suites[] = {
    {"decode", "test_decode", "random decode steps, all features", 1, 1, NULL},
    {"direct", "test_decode", "GPUs that write to each other's memory", 1, 0, "direct"},
    {"shapes", "test_decode_small", "every dtype, dimension and head count", 0, 0, NULL},
    {"narrow", "test_narrow", "K and V of 8 bits, every code", 1, 1, NULL},
    {"selected", "test_selected", "selected positions, shared prefixes", 1, 0, NULL},
    {"ragged", "test_ragged", "mixed batches", 0, 0, NULL},
    {"reproducible", "test_reproducible", "bits that no rank count changes", 0, 0, NULL},
    {"pitfalls", "test_pitfalls", "empty shards, NaN beyond the end, sinks", 0, 0, NULL},
    {"append", "test_append", "new tokens into the cache", 1, 0, NULL},
    {"combine", "test_combine", "outputs of other kernels, combined", 1, 0, NULL},
    {"reshard", "test_reshard", "caches that move to other ranks", 1, 0, NULL},
    {"collectives", "test_collectives", "sums and copies over ranks", 0, 0, NULL},
    {"capture", "test_replay", "steps replayed from graphs", 1, 0, NULL},
    {"attention", "test_attention_device", "full sequences, forward and backward", 1, 1, NULL},
    {"faults", "test_mismatch", "ranks that are not in the same step", 0, 0, NULL},
};

const selftest_suite *suite_get(int i)
{
    return i < (int)(sizeof suites / sizeof *suites) ? &suites[i] : NULL;
}

int suite_find_programs(char *directory, size_t capacity, char *error, size_t error_capacity)
{
    /* Beside this program where it is installed, in the build where it is not, then where the
     * installation was told to be. */
    static const char *const places[] = {"/../" BENCH_LIBEXEC_NAME, "/../tests"};
    char self[400], path[600];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash = length > 0 ? memrchr(self, '/', (size_t)length) : NULL;
    if (slash)
        *slash = '\0';
    for (int i = 0; i < 3; i++) {
        if (i < 2 && !slash)
            continue;
        snprintf(directory, capacity, "%s%s", i < 2 ? self : BENCH_LIBEXEC, i < 2 ? places[i] : "");
        snprintf(path, sizeof path, "%s/%s", directory, suites[0].program);
        if (access(path, X_OK) == 0)
            return 0;
    }
    snprintf(error, error_capacity,
             "the test programs are not installed: %s is missing; build and install with "
             "-Dtests=true",
             path);
    return -1;
}

/* The line "N Tests N Failures N Ignored" that ends a program's tests. */
static void count_tests(suite_result *result)
{
    const char *at = strstr(result->child.output, " Tests ");
    while (at && at > result->child.output && at[-1] >= '0' && at[-1] <= '9')
        --at;
    if (!at || sscanf(at, "%d Tests %d Failures %d Ignored", &result->tests, &result->failures,
                      &result->ignored) != 3)
        result->tests = result->failures = result->ignored = 0;
}

static void judge(double most_seconds, suite_result *result)
{
    const child_result *child = &result->child;
    char *end = result->end;
    size_t capacity = sizeof result->end;
    count_tests(result);
    if (child->end == CHILD_TOO_LONG)
        snprintf(end, capacity, "not done after %.0f s", most_seconds);
    else if (child->end == CHILD_KILLED)
        snprintf(end, capacity, "ended by signal %d", child->code);
    else if (child->code == 0 && result->tests > 0 && result->failures == 0)
        snprintf(end, capacity, "passed");
    else if (result->failures > 0)
        snprintf(end, capacity, "%d of %d tests failed", result->failures, result->tests);
    else
        snprintf(end, capacity, "exit code %d after %d tests", child->code, result->tests);
    result->passed = strcmp(end, "passed") == 0;
}

int suite_start(const char *directory, const suite_run *run, double most_seconds,
                suite_result *result, char *error, size_t capacity)
{
    char program[600], ranks[20];
    const char *argv[16] = {program, "--device", run->device};
    int count = 3;
    memset(result, 0, sizeof *result);
    snprintf(program, sizeof program, "%s/%s", directory, run->suite->program);
    snprintf(ranks, sizeof ranks, "%d", run->ranks);
    if (run->ranks) {
        argv[count++] = "--group";
        argv[count++] = "ccl";
        argv[count++] = "--ranks";
        argv[count++] = ranks;
    }
    argv[count++] = "--cases";
    argv[count++] = run->quick ? "4" : "400";
    if (run->suite->exchange) {
        argv[count++] = "--algorithm";
        argv[count++] = "tree";
        argv[count++] = "--exchange";
        argv[count++] = run->suite->exchange;
    }
    if (run->quick) {
        argv[count++] = "--every";
        argv[count++] = "16";
    }
    for (int i = 0; i < count; i++) {
        size_t used = strlen(result->command);
        snprintf(result->command + used, sizeof result->command - used, "%s%s", i ? " " : "",
                 i ? argv[i] : run->suite->program);
    }
    if (child_run((char *const *)argv, most_seconds, &result->child, error, capacity) != 0)
        return -1;
    judge(most_seconds, result);
    return 0;
}

static int worth_telling(const char *line, size_t length, int failures)
{
    char copy[200];
    snprintf(copy, sizeof copy, "%.*s", (int)(length < 199 ? length : 199), line);
    if (failures)
        return strstr(copy, ":FAIL") || strstr(copy, "    case: ");
    return strstr(copy, "worst ") || strncmp(copy, "left out: ", 10) == 0;
}

int suite_next_line(const char **text, int failures, char *line, size_t capacity)
{
    while (**text) {
        const char *begin = *text;
        size_t length = strcspn(begin, "\n");
        *text = begin + length + (begin[length] == '\n');
        if (worth_telling(begin, length, failures)) {
            snprintf(line, capacity, "%.*s", (int)length, begin);
            return 1;
        }
    }
    return 0;
}
