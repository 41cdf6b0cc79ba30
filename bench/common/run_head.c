/* The head of a run; see run_head.h. decode/report.c, attention/attention.c and
 * exchange/exchange.c write it. */
#include "run_head.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <treeattn/treeattn.h>

#include "device_text.h"
#include "launch.h"
#include "rank_device.h"

rank_place *places_find(const char *device, int one_each, int ranks)
{
    rank_place *places = calloc((size_t)ranks, sizeof *places);
    int first = launch.mpi ? launch.rank : 0, end = launch.mpi ? launch.rank + 1 : ranks;
    for (int rank = first; places && rank < end; rank++) {
        rank_place *p = &places[rank];
        if (gethostname(p->host, sizeof p->host - 1) != 0)
            snprintf(p->host, sizeof p->host, "unknown");
        if (one_each)
            rank_gpu_name(device, rank, p->device, sizeof p->device);
        else
            device_found(device, p->device, sizeof p->device);
        device_product(p->device, p->product, sizeof p->product);
    }
    if (places)
        launch_share(places, sizeof *places);
    return places;
}

void places_print(const rank_place *places, int ranks)
{
    for (int rank = 0, end; rank < ranks; rank = end) {
        const rank_place *p = &places[rank];
        for (end = rank + 1; end < ranks && memcmp(&places[end], p, sizeof *p) == 0;)
            end++;
        if (end > rank + 1)
            printf("# ranks %3d-%-4d", rank, end - 1);
        else
            printf("# rank  %3d     ", rank);
        printf(" %s, %s%s%s\n", p->host, p->device, p->product[0] ? ": " : "", p->product);
    }
}

void run_machine_print(const bench_machine *machine)
{
    printf("# machine   %s, %d CPUs, %.1f GiB, %s\n", machine->cpu, machine->cpus,
           (double)machine->memory_bytes * 0x1p-30, machine->system);
    if (launch.mpi)
        printf("# ranks     %d processes of %s, %d of them on this host\n", launch.ranks,
               launch.library, launch.local_ranks);
}

static void write_versions(json_writer *json)
{
    char version[32], now[32] = "unknown";
    time_t seconds = time(NULL);
    struct tm utc;
    snprintf(version, sizeof version, "%d.%d.%d", TA_VERSION_MAJOR, TA_VERSION_MINOR,
             TA_VERSION_PATCH);
    json_string(json, "version", version);
    json_int(json, "library_version", ta_version());
    if (gmtime_r(&seconds, &utc))
        strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_string(json, "time", now);
    json_string(json, "compiler", __VERSION__);
}

static void write_machine(json_writer *json, const bench_machine *machine)
{
    json_open(json, "machine", '{');
    json_string(json, "cpu", machine->cpu);
    json_int(json, "cpus", machine->cpus);
    json_int(json, "memory_bytes", machine->memory_bytes);
    json_string(json, "system", machine->system);
    json_close(json, '}');
}

static void write_info(json_writer *json)
{
    size_t bytes = 0;
    char *text;
    if (ta_info(NULL, 0, &bytes) != TA_OK || !(text = malloc(bytes)))
        return;
    if (ta_info(text, bytes, NULL) == TA_OK)
        json_string(json, "info", text);
    free(text);
}

static void write_launch(json_writer *json, const run_head *head)
{
    json_open(json, "launch", '{');
    json_string(json, "ranks_are", launch.mpi ? "processes" : "threads");
    if (launch.mpi) {
        json_string(json, "mpi", launch.library);
        json_int(json, "processes", launch.ranks);
        json_int(json, "on_this_host", launch.local_ranks);
    }
    json_open(json, "places", '[');
    for (int rank = 0; head->places && rank < head->ranks; rank++) {
        json_open(json, NULL, '{');
        json_string(json, "host", head->places[rank].host);
        json_string(json, "device", head->places[rank].device);
        json_string(json, "product", head->places[rank].product);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_close(json, '}');
}

void run_head_write(json_writer *json, const run_head *head)
{
    json_string(json, "program", head->program);
    json_open(json, "arguments", '[');
    for (int i = 0; i < head->argc; i++)
        json_string(json, NULL, head->argv[i]);
    json_close(json, ']');
    write_versions(json);
    write_machine(json, head->machine);
    write_info(json);
    write_launch(json, head);
}
