/* treeattn-bench: measures the library on this machine. This file has the commands; decode/decode.c
 * the main one. docs/benchmarks.md explains the output. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/treeattn.h>

#include "attention/attention.h"
#include "common/exit_code.h"
#include "common/launch.h"
#include "common/machine.h"
#include "compare/compare.h"
#include "decode/decode.h"
#include "decode/options.h"
#include "exchange/exchange.h"
#include "llama/llama.h"
#include "model/model.h"
#include "selftest/selftest.h"

static void print_help(FILE *file)
{
    fputs("usage: treeattn-bench COMMAND [FLAGS]\n"
          "\n"
          "  decode    time decode steps over a range of sequence lengths and check them\n"
          "  attention time attention over full sequences: treeattn-bench attention --help\n"
          "  exchange  time the kinds of exchange: treeattn-bench exchange --help\n"
          "  llama     run a model of the Llama family end to end: treeattn-bench llama --help\n"
          "  model     predict steps and calls on a cluster: treeattn-bench model --help\n"
          "  compare   two files of decode --json side by side\n"
          "  selftest  the library's tests on this machine's GPUs, and one report of them\n"
          "  info      describe this machine and the library\n"
          "  version   print the version\n"
          "  help      print this\n"
          "\n"
          "Flags of decode, defaults in brackets; --flag value or --flag=value. k is 1024, M is\n"
          "1024² tokens. A LIST has commas: there is a row for each combination.\n"
          "\n",
          file);
    options_help(file);
    fputs(
        "\n"
        "The columns: heads are query/KV heads; min, median and p99 are times of a step; ratio is\n"
        "the median over that of the first algorithm at the same work; attend and exchange are "
        "the\n"
        "time that ranks attend, and that they move, merge and wait; KV is the bytes of K and V "
        "over\n"
        "the median time, KVeach that of each rank; read is the same bytes only read, by as many\n"
        "threads, in the same run; frac is KV / read; bytes and msgs are what the busiest rank "
        "sends\n"
        "or receives in a step; peak is the device memory of the fullest rank; #wrong counts "
        "results\n"
        "beyond their tolerance from double precision.\n"
        "\n"
        "Exit codes: 0 all well, 1 wrong results or a failed step, 2 wrong usage, 3 the device is\n"
        "not available: no GPU, no driver, or no module for it; 'info' says which.\n"
        "\n"
        "Examples:\n"
        "  treeattn-bench decode\n"
        "  treeattn-bench decode -b 1k -e 256k -f 2 --ranks 2 --dtype f16,bf16\n"
        "  treeattn-bench decode -b 16k --algo tree,ring-kv,ring-q --ranks 1,2,4,8 --scaling weak\n"
        "  treeattn-bench decode -b 32k --ranks 1 --threads 1,2 --heads 8,32 --json out.json\n"
        "  mpirun -n 4 treeattn-bench decode -b 64k      each process is a rank; also --mpi\n"
        "  mpirun -n 4 treeattn-bench attention --algo grid,overlap,ring\n",
        file);
}

static int print_info(void)
{
    bench_machine machine;
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

static void print_version(void)
{
    int library = ta_version();
    printf("treeattn-bench %d.%d.%d, library %d.%d.%d\n", TA_VERSION_MAJOR, TA_VERSION_MINOR,
           TA_VERSION_PATCH, library / 10000, library / 100 % 100, library % 100);
}

static int is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

/* Run a command whose ranks may be MPI processes. */
static int launch_command(int (*command)(int argc, char **argv), int argc, char **argv)
{
    int code = launch_begin(&argc, &argv);
    if (code == EXIT_OK)
        code = command(argc - 2, argv + 2);
    launch_end();
    return code;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    const char *command = argv[1];
    if (strcmp(command, "decode") == 0)
        return launch_command(decode_command, argc, argv);
    if (strcmp(command, "attention") == 0)
        return launch_command(attention_command, argc, argv);
    if (strcmp(command, "exchange") == 0)
        return launch_command(exchange_command, argc, argv);
    if (strcmp(command, "llama") == 0)
        return launch_command(llama_command, argc, argv);
    if (strcmp(command, "model") == 0)
        return model_command(argc - 2, argv + 2);
    if (strcmp(command, "compare") == 0)
        return compare_command(argc - 2, argv + 2);
    if (strcmp(command, "selftest") == 0)
        return selftest_command(argc - 2, argv + 2);
    if (strcmp(command, "info") == 0)
        return print_info();
    if (is_one_of(command, "version", "--version", "-V"))
        print_version();
    else if (is_one_of(command, "help", "--help", "-h"))
        print_help(stdout);
    else {
        fprintf(stderr,
                "treeattn-bench: unknown command '%s': must be decode, attention, exchange, "
                "llama, model, compare, selftest, info, version or help\n",
                command);
        return EXIT_USAGE;
    }
    return EXIT_OK;
}
