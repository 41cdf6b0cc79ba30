/* treeattn-bench: measures the library on this machine. This file has the commands; decode/decode.c
 * the main one. docs/benchmarks.md explains the output. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/treeattn.h>

#include "attention/attention.h"
#include "common/args.h"
#include "common/exit_code.h"
#include "common/launch.h"
#include "common/machine.h"
#include "compare/compare.h"
#include "decode/decode.h"
#include "exchange/exchange.h"
#include "llama/llama.h"
#include "model/model.h"
#include "selftest/selftest.h"

static int print_info(int argc, char **argv)
{
    bench_machine machine;
    (void)argc;
    (void)argv;
    size_t bytes = 0;
    if (ta_info(NULL, 0, &bytes) != TA_OK)
        return EXIT_WRONG;
    char *text = malloc(bytes);
    if (!text || ta_info(text, bytes, NULL) != TA_OK) {
        free(text);
        return EXIT_WRONG;
    }
    machine_read(&machine);
    printf("cpu: %s\ncpus: %d\nmemory: %.1f GiB, %.1f available\nsystem: %s\n%s", machine.cpu,
           machine.cpus, (double)machine.memory_bytes * 0x1p-30,
           (double)machine.available_bytes * 0x1p-30, machine.system, text);
    free(text);
    return EXIT_OK;
}

static int print_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    int library = ta_version();
    printf("treeattn-bench %d.%d.%d, library %d.%d.%d\n", TA_VERSION_MAJOR, TA_VERSION_MINOR,
           TA_VERSION_PATCH, library / 10000, library / 100 % 100, library % 100);
    return EXIT_OK;
}

/* A command: what stands behind its name in the usage, one sentence, and whether its ranks may be
 * MPI processes. */
typedef struct bench_command {
    const char *name, *arguments, *what;
    int (*run)(int argc, char **argv);
    int launched;
    const char *more; /* of the help, where there are no flags that say it; or NULL */
} bench_command;

static int print_help(int argc, char **argv);

static const bench_command commands[] = {
    {"decode", "[FLAGS]", "time decode steps over a range of sequence lengths and check them",
     decode_command, 1, NULL},
    {"attention", "[FLAGS]", "time attention over full sequences, forward and backward",
     attention_command, 1, NULL},
    {"exchange", "[FLAGS]", "time the kinds of exchange by the bytes of a partial",
     exchange_command, 1, NULL},
    {"llama", "[FLAGS]", "run a model of the Llama family end to end", llama_command, 1, NULL},
    {"model", "CLUSTER [FLAGS]", "predict steps and calls on a cluster", model_command, 0, NULL},
    {"compare", "A.json B.json", "two files that --json wrote, side by side", compare_command, 0,
     "Rows of the same work stand beside each other; if there are none, the options that differ\n"
     "are named. For files of decode, attention, exchange and llama. Needs python3.\n"},
    {"report", "A.json [B.json ...] -o FILE.html", "one page about runs, with plots, to send",
     report_command, 0,
     "  -o, --output FILE          the page to write: plots, tables, machines and commands of up "
     "to\n"
     "                             26 files that --json wrote; it needs no network. Needs "
     "python3.\n"},
    {"selftest", "[FLAGS]", "the library's tests on this machine's GPUs, and one report of them",
     selftest_command, 0, NULL},
    {"info", "", "describe this machine, the library and its devices", print_info, 0, NULL},
    {"version", "", "print the version", print_version, 0, NULL},
    {"help", "[COMMAND]", "print this, or the flags of a command", print_help, 0, NULL},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void print_usage(FILE *file)
{
    fputs("usage: treeattn-bench COMMAND [FLAGS]\n\n", file);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].what);
    fputs("\n'treeattn-bench COMMAND --help' lists the flags of a command.\n", file);
}

static const bench_command *find_command(const char *name)
{
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    const bench_command *nearest = &commands[0];
    print_usage(stderr);
    for (int i = 1; i < COMMANDS; i++)
        if (args_distance(name, commands[i].name) < args_distance(name, nearest->name))
            nearest = &commands[i];
    fprintf(stderr, "\ntreeattn-bench: unknown command '%s'", name);
    if (args_distance(name, nearest->name) <= 2)
        fprintf(stderr, "; did you mean '%s'?", nearest->name);
    fputs("\n", stderr);
    return EXIT_USAGE;
}

static int run_command(const bench_command *command, int argc, char **argv)
{
    if (command->arguments[0] == '\0' && argc > 2) {
        fprintf(stderr, "treeattn-bench: %s takes no arguments, but got '%s'\n", command->name,
                argv[2]);
        return EXIT_USAGE;
    }
    int code = command->launched ? launch_begin(&argc, &argv) : EXIT_OK;
    if (code == EXIT_OK)
        code = command->run(argc - 2, argv + 2);
    if (command->launched)
        launch_end();
    return code;
}

static int is_one_of(const char *word, const char *a, const char *b)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0;
}

/* The usage, then what the command itself says of its flags, if it has any. */
static int help_with(const bench_command *command)
{
    char flag[] = "--help", *arguments[] = {flag, NULL};
    printf("usage: treeattn-bench %s%s%s\n\n%c%s.\n", command->name,
           command->arguments[0] ? " " : "", command->arguments, command->what[0] - 'a' + 'A',
           command->what + 1);
    if (command->more)
        printf("\n%s", command->more);
    if (!strstr(command->arguments, "[FLAGS]"))
        return EXIT_OK;
    puts("");
    return command->run(1, arguments);
}

static int print_help(int argc, char **argv)
{
    if (argc > 0) {
        const bench_command *command = find_command(argv[0]);
        return command ? help_with(command) : unknown_command(argv[0]);
    }
    print_usage(stdout);
    puts(
        "\nExit codes: 0 all well, 1 wrong results or a failed step, 2 wrong usage, 3 the device "
        "is\n"
        "not available: no GPU, no driver, or no module for it; 'info' says which.\n"
        "\n"
        "Examples:\n"
        "  treeattn-bench decode\n"
        "  treeattn-bench decode -b 1k -e 256k -f 2 --ranks 2 --dtype f16,bf16\n"
        "  treeattn-bench decode -b 16k --algo tree,ring-kv,ring-q --ranks 1,2,4,8 --scaling weak\n"
        "  treeattn-bench decode -b 32k --ranks 1 --threads 1,2 --heads 8,32 --json out.json\n"
        "  mpirun -n 4 treeattn-bench decode -b 64k      each process is a rank; also --mpi\n"
        "  mpirun -n 4 treeattn-bench attention --algo grid,overlap,ring");
    return EXIT_OK;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (is_one_of(name, "--version", "-V"))
        name = "version";
    if (is_one_of(name, "--help", "-h"))
        name = "help";
    const bench_command *command = find_command(name);
    if (!command)
        return unknown_command(name);
    for (int i = 2; i < argc; i++)
        if (is_one_of(argv[i], "--help", "-h"))
            return help_with(command);
    return run_command(command, argc, argv);
}
