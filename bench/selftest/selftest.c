/* `treeattn-bench selftest`: the library's own tests and one benchmark on the GPUs of this machine,
 * and one file about it all that a person can send. suites.c has what is run, devices.c on what;
 * docs/gpu.md says how to read the file. */
#include "selftest.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <treeattn/treeattn.h>

#include "common/args.h"
#include "common/exit_code.h"
#include "common/json.h"
#include "common/launch.h"
#include "common/machine.h"
#include "devices.h"
#include "suites.h"

typedef struct selftest_options {
    const char *device, *only, *report;
    int64_t quick, seconds, help;
} selftest_options;

#define AT(field) offsetof(selftest_options, field)
static const arg_flag flags[] = {
    FLAG_TEXT(0, "device", device, "NAME",
              "auto (every GPU), cuda, rocm (all of that kind), or one: cuda:1, host"),
    FLAG_TEXT(0, "only", only, "LIST", "these suites, by their names below", "all of them"),
    FLAG_SET(0, "quick", quick, "a few cases of each suite"),
    FLAG_INT(0, "seconds", seconds, 1, 86400, "N", "that one suite may take"),
    FLAG_TEXT(0, "report", report, "FILE", "write the report there"),
    FLAG_HELP(help),
    {0},
};
static const arg_flag *const tables[] = {flags, NULL};
static const selftest_options defaults = {
    .device = "auto", .seconds = 900, .report = "treeattn-selftest.json"};

/* What is run behind the suites; a word of --only, as their names. */
static const char benchmark[] = "benchmark";

static void print_help(FILE *file)
{
    fputs("The report has what was run, how far results were from exact ones, and the bandwidth\n"
          "reached. Takes some minutes a GPU.\n\n",
          file);
    args_print(file, tables, &defaults);
    fputs("\nThe suites:\n", file);
    for (int i = 0; suite_get(i); i++)
        fprintf(file, "  %-14s %s%s\n", suite_get(i)->name, suite_get(i)->what,
                suite_get(i)->groups && !suite_get(i)->exchange ? "; also with a GPU for each rank"
                                                                : "");
    fprintf(file, "  %-14s a decode step's bandwidth, on each device\n", benchmark);
    fputs("\nExit codes: 0 all passed, 1 something failed, 2 wrong usage, 3 there is no such "
          "device.\n",
          file);
}

/* Is `name` one of the words of `list`, which has commas? */
static int listed(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return 1;
    return 0;
}

/* Returns the first word of `--only` that is no suite, or NULL. */
static const char *unknown_suite(const char *only, char *word, size_t capacity)
{
    while (only && *only) {
        size_t length = strcspn(only, ",");
        snprintf(word, capacity, "%.*s", (int)length, only);
        int known = strcmp(word, benchmark) == 0;
        for (int i = 0; suite_get(i); i++)
            known |= strcmp(suite_get(i)->name, word) == 0;
        if (!known)
            return word;
        only += length + (only[length] == ',');
    }
    return NULL;
}

static void write_lines(json_writer *json, const char *name, const char *output, int failures)
{
    char line[1200];
    json_open(json, name, '[');
    while (suite_next_line(&output, failures, line, sizeof line))
        json_string(json, NULL, line);
    json_close(json, ']');
}

/* One suite: a line for the person, an object for the report. Returns whether it passed. */
static int run_suite(const char *directory, const suite_run *run, double most_seconds,
                     json_writer *json)
{
    suite_result result;
    char error[700], where[80];
    const char *group = run->ranks ? ", a GPU for each rank" : "";
    snprintf(where, sizeof where, "%s%s", run->device, group);
    printf("%-14s %-34s ", run->suite->name, where);
    fflush(stdout);
    json_open(json, NULL, '{');
    json_string(json, "suite", run->suite->name);
    json_string(json, "device", run->device);
    json_int(json, "group_ranks", run->ranks);
    if (suite_start(directory, run, most_seconds, &result, error, sizeof error) != 0) {
        puts(error);
        json_string(json, "result", error);
        json_close(json, '}');
        return 0;
    }
    printf("%6.1f s  %3d tests  %s\n", result.child.seconds, result.tests, result.end);
    json_string(json, "command", result.command);
    json_string(json, "result", result.end);
    json_truth(json, "passed", result.passed);
    json_int(json, "tests", result.tests);
    json_int(json, "failures", result.failures);
    json_int(json, "ignored", result.ignored);
    json_double(json, "seconds", result.child.seconds);
    write_lines(json, "errors_in_bounds", result.child.output, 0);
    write_lines(json, "failed", result.child.output, 1);
    if (!result.passed)
        json_string(json, "output", result.child.output);
    json_close(json, '}');
    free(result.child.output);
    return result.passed;
}

/* Every suite on the first device of each kind, some on all, and some over all of a kind. Returns
 * how many failed. */
static int run_suites(const selftest_options *o, const char *directory, const device_list *list,
                      json_writer *json)
{
    int failed = 0;
    json_open(json, "suites", '[');
    for (int i = 0; i < list->count; i++) {
        char kind[DEVICE_NAME];
        snprintf(kind, sizeof kind, "%.*s", (int)strcspn(list->names[i], ":"), list->names[i]);
        for (int s = 0; suite_get(s); s++) {
            suite_run run = {suite_get(s), list->names[i], 0, (int)o->quick};
            if (o->only && !listed(o->only, run.suite->name))
                continue;
            int alone = list->first_of_kind[i] || run.suite->every_device;
            if (alone && !run.suite->exchange)
                failed += !run_suite(directory, &run, (double)o->seconds, json);
            if (alone && run.suite->exchange && list->kind_count[i] < 2)
                printf("%-14s left out, it needs several GPUs of a kind\n", run.suite->name);
            if (!list->first_of_kind[i] || !run.suite->groups || list->kind_count[i] < 2)
                continue;
            run.device = kind;
            run.ranks = list->kind_count[i];
            failed += !run_suite(directory, &run, (double)o->seconds, json);
        }
    }
    json_close(json, ']');
    return failed;
}

/* A decode step's bandwidth on each device, by the benchmark itself. Returns how many failed. */
static int run_benchmark(const selftest_options *o, const device_list *list, json_writer *json)
{
    int failed = 0;
    json_open(json, "decode", '[');
    int wanted = !o->only || listed(o->only, benchmark);
    for (int i = 0; i < list->count && wanted; i++) {
        char self[] = "/proc/self/exe", device[DEVICE_NAME], error[700];
        char *const argv[] = {self,         "decode",
                              "--device",   device,
                              "-b",         o->quick ? "1k" : "64k",
                              "--ranks",    "1",
                              "--heads",    "32",
                              "--kv-heads", "8",
                              "--dtype",    "bf16",
                              "-n",         o->quick ? "3" : "50",
                              NULL};
        child_result result;
        snprintf(device, sizeof device, "%s", list->names[i]);
        json_open(json, NULL, '{');
        json_string(json, "device", device);
        if (child_run(argv, (double)o->seconds, &result, error, sizeof error) != 0) {
            json_string(json, "output", error);
            failed++;
        } else {
            int good = result.end == CHILD_EXITED && result.code == EXIT_OK;
            printf("\n%s", result.output);
            json_truth(json, "passed", good);
            json_string(json, "output", result.output);
            failed += !good;
            free(result.output);
        }
        json_close(json, '}');
    }
    json_close(json, ']');
    return failed;
}

static void write_head(json_writer *json, const device_list *list)
{
    char date[40] = "", *info = NULL;
    time_t now = time(NULL);
    size_t bytes = 0;
    bench_machine machine;
    machine_read(&machine);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    json_string(json, "date", date);
    json_open(json, "machine", '{');
    json_string(json, "cpu", machine.cpu);
    json_int(json, "cpus", machine.cpus);
    json_int(json, "memory_bytes", machine.memory_bytes);
    json_string(json, "system", machine.system);
    json_close(json, '}');
    json_open(json, "devices", '[');
    for (int i = 0; i < list->count; i++)
        json_string(json, NULL, list->names[i]);
    json_close(json, ']');
    if (ta_info(NULL, 0, &bytes) == TA_OK && (info = malloc(bytes)) != NULL &&
        ta_info(info, bytes, NULL) == TA_OK) {
        json_open(json, "library", '[');
        for (char *rest = info, *line; (line = strsep(&rest, "\n")) != NULL;)
            if (*line)
                json_string(json, NULL, line);
        json_close(json, ']');
    }
    free(info);
}

static int run_all(const selftest_options *o, const char *directory, const device_list *list)
{
    json_writer json;
    FILE *file = fopen(o->report, "w");
    if (!file) {
        fprintf(stderr, "treeattn-bench: --report %s: the file cannot be written\n", o->report);
        return EXIT_USAGE;
    }
    json_init(&json, file);
    json_open(&json, NULL, '{');
    json_string(&json, "program", "treeattn-bench selftest");
    write_head(&json, list);
    int failed = run_suites(o, directory, list, &json);
    failed += run_benchmark(o, list, &json);
    json_int(&json, "failed", failed);
    json_close(&json, '}');
    int written = !ferror(file);
    if (fclose(file) != 0 || !written) {
        fprintf(stderr, "treeattn-bench: --report %s: writing failed\n", o->report);
        return EXIT_WRONG;
    }
    printf("\n%s; the report is %s\n", failed ? "SOMETHING FAILED" : "all passed", o->report);
    return failed ? EXIT_WRONG : EXIT_OK;
}

/* One process tests all GPUs of a host; several would use them at once and write one report. */
static int refuse_ranks(void)
{
    int processes, rank = launch_process(&processes);
    if (processes > 1 && rank == 0)
        fprintf(stderr,
                "treeattn-bench: selftest was started %d times by a launcher, but tests all GPUs "
                "of a host by itself: start it once, as with srun --ntasks=1\n",
                processes);
    return processes > 1;
}

int selftest_command(int argc, char **argv)
{
    selftest_options o = defaults;
    char error[700], directory[500], word[64];
    device_list list;
    if (args_parse(tables, &o, argc, argv, error, sizeof error) != 0) {
        fprintf(stderr, "treeattn-bench: %s\n", error);
        return EXIT_USAGE;
    }
    if (o.help) {
        print_help(stdout);
        return EXIT_OK;
    }
    if (unknown_suite(o.only, word, sizeof word)) {
        fprintf(stderr, "treeattn-bench: --only has '%s', which is no suite: see --help\n", word);
        return EXIT_USAGE;
    }
    if (refuse_ranks())
        return EXIT_USAGE;
    launch_forget();
    if (suite_find_programs(directory, sizeof directory, error, sizeof error) != 0) {
        fprintf(stderr, "treeattn-bench: %s\n", error);
        return EXIT_WRONG;
    }
    devices_find(o.device, &list);
    if (list.count == 0) {
        fprintf(stderr, "treeattn-bench: --device %s: nothing to test\n%s\n", o.device, list.why);
        return EXIT_NO_DEVICE;
    }
    devices_share_modules();
    return run_all(&o, directory, &list);
}
