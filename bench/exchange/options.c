/* See options.h. exchange.c uses it. */
#include "options.h"

#include <stdlib.h>
#include <string.h>

#include "common/exit_code.h"
#include "common/launch.h"
#include "common/sweep.h"

static const char *const placement_words[] = {"all", "root", "heads", NULL};
static const char *const kind_words[] = {"doubling",   "binomial",   "scatter", "two-level",
                                         "all-gather", "all-reduce", "direct",  "multi-level",
                                         "bare",       NULL};
static const int kinds[] = {TA_EXCHANGE_DOUBLING,  TA_EXCHANGE_BINOMIAL,    TA_EXCHANGE_SCATTER,
                            TA_EXCHANGE_TWO_LEVEL, TA_EXCHANGE_ALL_GATHER,  TA_EXCHANGE_ALL_REDUCE,
                            TA_EXCHANGE_DIRECT,    TA_EXCHANGE_MULTI_LEVEL, WAY_BARE};

#define AT(field) offsetof(exchange_options, field)
static const arg_flag flags[] = {
    FLAG_INT('b', "begin", bytes.begin, 64, 1 << 30, "BYTES", "of the smallest partial"),
    FLAG_INT('e', "end", bytes.end, 64, 1 << 30, "BYTES", "of the largest"),
    FLAG_INT('f', "factor", bytes.factor, 2, 1024, "N", "from one to the next"),
    FLAG_INT('n', "iterations", iterations, 1, 1000000, "N", "samples of each kind"),
    FLAG_INT('w', "warmup", warmup, 0, 1000000, "N", "samples before them"),
    FLAG_INT('r', "repeat", repeat, 1, 1000000, "N",
             "steps of a sample, between which all other kinds have one"),
    FLAG_INT(0, "ranks", ranks, 2, 1024, "N", "threads; under mpirun the processes"),
    FLAG_CHOICES(0, "kinds", kinds, kind_words, "LIST",
                 "of exchange; rows are compared with the first", "all that there are"),
    FLAG_INT(0, "head-dim", dim, 8, 576, "N", "head dimension, a multiple of 8"),
    FLAG_CHOICE(0, "placement", placement, placement_words, "WORD",
                "of the output: all, root, heads"),
    FLAG_TEXT(0, "device", device, "NAME",
              "where partials are: host, or a kind of GPU, cuda, rocm or auto, of which each rank "
              "takes one"),
    FLAG_GROUP(group, "on GPUs"),
    FLAG_TEXT(0, "cluster", cluster, "NAME",
              "where the ranks are, for the kinds that go by nodes: h100:2x8, a file, or probe",
              "one node"),
    FLAG_INT('c', "check", check, 0, 1, "0|1", "check the results"),
    FLAG_TEXT('J', "json", json, "FILE",
              "write every sample there; -: to standard output, and the table to standard error"),
    FLAG_CSV(csv),
    FLAG_HELP(help),
    {0},
};
static const arg_flag *const tables[] = {flags, NULL};
static const exchange_options defaults = {.bytes = {4096, 1 << 20, 4},
                                          .iterations = 50,
                                          .warmup = 5,
                                          .repeat = 20,
                                          .ranks = 2,
                                          .dim = 128,
                                          .device = "host",
                                          .check = 1};

int exchange_options_parse(int argc, char **argv, exchange_options *o, char *error, size_t capacity)
{
    *o = defaults;
    if (args_parse(tables, o, argc, argv, error, capacity) != 0)
        return -1;
    if (launch.mpi)
        o->ranks = launch.ranks;
    if (launch.mpi && o->ranks < 2) {
        snprintf(error, capacity, "there is one process: an exchange needs two or more");
        return -1;
    }
    if (o->bytes.end < o->bytes.begin) {
        snprintf(error, capacity, "--end is %lld: must be at least --begin, %lld",
                 (long long)o->bytes.end, (long long)o->bytes.begin);
        return -1;
    }
    return sweep_check_dim("head-dim", o->dim, error, capacity);
}

int exchange_options_try_device(exchange_options *o, char *error, size_t capacity)
{
    int code = rank_devices_try(&o->devices, &o->device, NULL, &o->group, error, capacity);
    if (code == EXIT_OK && o->devices.gpu && !o->devices.each) {
        snprintf(
            error, capacity,
            "--device is %s: must be a kind of GPU, such as %.*s, of which each rank takes one",
            o->device, (int)strcspn(o->device, ":"), o->device);
        return EXIT_USAGE;
    }
    if (!o->devices.gpu)
        o->device = "host";
    return code;
}

/* What can be measured, as far as the flags say. Plans of what is asked for say why they can't be
 * made. */
static int is_there(const exchange_options *o, ta_placement placement, int kind)
{
    int one_host = !launch.mpi || launch.local_ranks == launch.ranks, asked = o->kinds.count;
    if (kind == WAY_BARE)
        return one_host && !o->devices.gpu;
    if (kind == TA_EXCHANGE_DOUBLING)
        return placement != TA_PLACE_ROOT;
    if (kind == TA_EXCHANGE_ALL_REDUCE)
        return asked || o->group != RANK_GROUP_CCL;
    if (kind == TA_EXCHANGE_TWO_LEVEL || kind == TA_EXCHANGE_MULTI_LEVEL)
        return asked || o->cluster;
    return 1;
}

/* Those that a cluster or the devices may not allow are left out, unless they are asked for. */
static int may_fail(int kind)
{
    return kind == TA_EXCHANGE_TWO_LEVEL || kind == TA_EXCHANGE_MULTI_LEVEL ||
           kind == TA_EXCHANGE_DIRECT;
}

void exchange_options_choose(const exchange_options *o, exchange_row *row)
{
    int all = (int)(sizeof kinds / sizeof *kinds), asked = o->kinds.count;
    for (int i = 0; i < (asked ? asked : all); i++) {
        int kind = kinds[asked ? o->kinds.values[i] : i];
        if (!is_there(o, row->placement, kind))
            continue;
        row->optional[row->ways] = !asked && may_fail(kind);
        row->way[row->ways++] = kind;
    }
    if (o->devices.gpu) {
        row->way[row->ways++] = WAY_GROUP_REDUCE;
        if (row->ccl)
            row->way[row->ways++] = WAY_CCL_REDUCE;
        row->way[row->ways++] = WAY_GROUP_GATHER;
    } else if (launch.mpi) {
        row->way[row->ways++] = WAY_MPI_REDUCE;
        row->way[row->ways++] = WAY_MPI_GATHER;
    }
}

void exchange_options_help(FILE *file)
{
    args_print(file, tables, &defaults);
}

const char *exchange_placement_name(const exchange_options *o)
{
    return placement_words[o->placement];
}
