/* See sweep.h. */
#include "sweep.h"

#include <string.h>

#include "elements.h"
#include "launch.h"

const char *const sweep_scaling_words[] = {"strong", "weak", NULL};

enum { USUAL_BEGIN = 4096 };

#define AT(field) offsetof(sweep_options, field)
const arg_flag sweep_flags[] = {
    FLAG_INT('b', "begin", lengths.begin, 1, INT32_MAX, "TOKENS",
             "shortest sequence, over all ranks", "4k, or --end if that is less"),
    FLAG_INT('e', "end", lengths.end, 1, INT32_MAX, "TOKENS",
             "longest sequence; that of --begin if only that is given"),
    FLAG_INT('f', "factor", lengths.factor, 2, 1 << 20, "N", "from each length to the next"),
    FLAG_INT('n', "iterations", iterations, 1, 1000000, "N", "timed steps per row",
             "what fits into 2 s, from 7 to 20"),
    FLAG_INT('w', "warmup", warmup, 0, 1000000, "N", "untimed steps before them"),
    FLAG_INT('c', "check", check, 0, 1, "0|1", "check the results in double precision"),
    FLAG_CHOICE(0, "scaling", scaling, sweep_scaling_words, "KIND",
                "lengths are of the sequence (strong) or of each rank's part (weak)"),
    FLAG_INTS(0, "ranks", ranks, 1, 1024, "LIST",
              "ranks that share the tokens, as threads of this process; under mpirun each process "
              "is one of them"),
    FLAG_INTS(0, "threads", threads, 1, 1024, "LIST", "threads of each rank",
              "the CPUs divided by the ranks, at least 1"),
    FLAG_INTS(0, "heads", heads, 1, 65536, "LIST", "query heads"),
    FLAG_INTS(0, "kv-heads", kv_heads, 1, 65536, "LIST", "KV heads", "--heads"),
    FLAG_CHOICES(0, "dtype", dtypes, element_words, "LIST", "f32, f16, bf16: of all tensors"),
    FLAG_TEXT(0, "device", device, "NAME",
              "where it runs: host; cuda or rocm, a GPU for each rank; cuda:0, one GPU for all; or "
              "auto for the best there is"),
    FLAG_TEXT(0, "simd", simd, "LEVEL", "host: scalar, avx2, avx512, avx512bf16, neon",
              "the best this CPU has"),
    FLAG_TEXT('J', "json", json, "FILE",
              "also write every sample and column to this file; -: to standard output, and the "
              "table to standard error"),
    FLAG_HELP(help),
    {0},
};

arg_list sweep_one(int64_t value)
{
    arg_list list = {1, {value}};
    return list;
}

int64_t sweep_count(const sweep_lengths *lengths)
{
    int64_t count = 0;
    for (int64_t tokens = lengths->begin; tokens <= lengths->end; tokens *= lengths->factor)
        count++;
    return count;
}

int64_t sweep_digit(int64_t *number, int64_t count)
{
    int64_t digit = *number % count;
    *number /= count;
    return digit;
}

int32_t sweep_tokens(const sweep_lengths *lengths, int64_t digit, int64_t scaling, int ranks)
{
    int64_t tokens = lengths->begin;
    for (; digit > 0; digit--)
        tokens *= lengths->factor;
    return (int32_t)(scaling == SCALING_WEAK ? tokens * ranks : tokens);
}

int sweep_threads(int64_t given, const bench_machine *machine, int ranks)
{
    int threads = given ? (int)given : machine->cpus / (launch.mpi ? launch.local_ranks : ranks);
    return threads > 0 ? threads : 1;
}

static int check_lengths(const sweep_lengths *lengths, int64_t scaling, const arg_list *ranks,
                         char *error, size_t capacity)
{
    if (lengths->begin > lengths->end) {
        snprintf(error, capacity, "--begin is %lld, but must be at most --end, which is %lld",
                 (long long)lengths->begin, (long long)lengths->end);
        return -1;
    }
    for (int i = 0; scaling == SCALING_WEAK && i < ranks->count; i++) {
        if (ranks->values[i] * lengths->end <= INT32_MAX)
            continue;
        snprintf(error, capacity, "--end is %lld, but with %lld ranks must be at most %lld",
                 (long long)lengths->end, (long long)ranks->values[i],
                 (long long)(INT32_MAX / ranks->values[i]));
        return -1;
    }
    return 0;
}

static int check_heads(const arg_list *heads, const arg_list *kv_heads, char *error,
                       size_t capacity)
{
    for (int i = 0; i < heads->count; i++) {
        for (int j = 0; j < kv_heads->count; j++) {
            if (heads->values[i] % kv_heads->values[j] == 0)
                continue;
            snprintf(error, capacity, "--heads is %lld, but must be a multiple of --kv-heads %lld",
                     (long long)heads->values[i], (long long)kv_heads->values[j]);
            return -1;
        }
    }
    return 0;
}

int sweep_check(const sweep_options *sweep, char *error, size_t capacity)
{
    if (check_lengths(&sweep->lengths, sweep->scaling, &sweep->ranks, error, capacity) != 0)
        return -1;
    return check_heads(&sweep->heads, &sweep->kv_heads, error, capacity);
}

int sweep_check_dim(const char *flag, int64_t dim, char *error, size_t capacity)
{
    if (dim % 8 == 0)
        return 0;
    snprintf(error, capacity, "--%s is %lld, but must be a multiple of 8", flag, (long long)dim);
    return -1;
}

int sweep_use_processes(arg_list *ranks, int given, char *error, size_t capacity)
{
    if (!launch.mpi)
        return 0;
    if (given && (ranks->count != 1 || ranks->values[0] != launch.ranks)) {
        snprintf(error, capacity, "--ranks is given, but there are %d MPI processes: leave it out",
                 launch.ranks);
        return -1;
    }
    *ranks = sweep_one(launch.ranks);
    return 0;
}

int sweep_parse(sweep_options *sweep, const arg_flag *const *tables, int argc, char **argv,
                char *error, size_t capacity)
{
    sweep_lengths *lengths = &sweep->lengths;
    arg_list usual_ranks = sweep->ranks;
    int64_t usual_end = lengths->end;
    lengths->end = 0;
    if (args_parse(tables, sweep, argc, argv, error, capacity) != 0)
        return -1;
    if (lengths->end == 0)
        lengths->end = lengths->begin ? lengths->begin : usual_end;
    if (lengths->begin == 0)
        lengths->begin = lengths->end < USUAL_BEGIN ? lengths->end : USUAL_BEGIN;
    int given = memcmp(&sweep->ranks, &usual_ranks, sizeof usual_ranks) != 0;
    return sweep_use_processes(&sweep->ranks, given, error, capacity);
}
