/* See sweep.h. */
#include "sweep.h"

#include <string.h>

#include "launch.h"

const char *const sweep_dtype_words[] = {"f32", "f16", "bf16", NULL};
const ta_dtype sweep_dtype_values[] = {TA_F32, TA_F16, TA_BF16};
const char *const sweep_scaling_words[] = {"strong", "weak", NULL};

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

int sweep_check_lengths(const sweep_lengths *lengths, int64_t scaling, const arg_list *ranks,
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

int sweep_check_heads(const arg_list *heads, const arg_list *kv_heads, char *error, size_t capacity)
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

int sweep_use_processes(arg_list *ranks, const arg_list *defaults, char *error, size_t capacity)
{
    if (!launch.mpi)
        return 0;
    if (memcmp(ranks, defaults, sizeof *ranks) != 0 &&
        (ranks->count != 1 || ranks->values[0] != launch.ranks)) {
        snprintf(error, capacity, "--ranks is given, but there are %d MPI processes: leave it out",
                 launch.ranks);
        return -1;
    }
    *ranks = sweep_one(launch.ranks);
    return 0;
}

void sweep_print_flags(FILE *file, const arg_flag *flags)
{
    for (; flags->name; flags++) {
        char name[64];
        snprintf(name, sizeof name, "%c%c%s--%s %s", flags->letter ? '-' : ' ',
                 flags->letter ? flags->letter : ' ', flags->letter ? ", " : "  ", flags->name,
                 flags->value_name);
        fprintf(file, "  %-26s %s\n", name, flags->help);
    }
}
