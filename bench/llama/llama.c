/* `treeattn-bench llama`: flags.c has the flags; this file finds the model, makes or loads its
 * weights and goes through the rows: timing.c runs one, summary.c prints it, forecast.c
 * predicts it. Under mpirun every process runs all of it in step with the others, and the first
 * one prints. */
#include "llama.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <treeattn/extension.h>

#include "common/elements.h"
#include "common/fail.h"
#include "common/launch.h"
#include "common/quiet.h"
#include "common/run_files.h"
#include "common/run_head.h"
#include "common/sweep.h"
#include "device/model.h"
#include "products.h"
#include "prompt.h"
#include "safetensors.h"
#include "summary.h"

typedef struct llama_job {
    llama_flags flags;
    bench_machine machine;
    llama_config config;
    const char *folder; /* with safetensors files; NULL: random weights */
    llama_weights *weights;
    int32_t *given;     /* the prompt of --words */
    rank_place *places; /* of the largest row; NULL: nothing runs */
    llama_head head;
    double disturbed; /* the most that other programs used of the CPUs in a row */
    run_files files;
    json_writer json;
} llama_job;

static const char command[] = "llama";

/* ---- Model and prompt ---------------------------------------------------------------------- */

static int find_model(llama_job *job, char *error, size_t capacity)
{
    const char *model = job->flags.model;
    char path[4096];
    struct stat status;
    if (llama_config_builtin(model, &job->config) == 0)
        return 0;
    if (stat(model, &status) != 0) {
        snprintf(error, capacity,
                 "--model is '%s', but must be 3.1-8b, 3.2-1b, 3-70b, tiny, a folder with a "
                 "config.json, or a config.json",
                 model);
        return -1;
    }
    if (!S_ISDIR(status.st_mode))
        return llama_config_read(model, &job->config, error, capacity);
    snprintf(path, sizeof path, "%s/config.json", model);
    if (llama_config_read(path, &job->config, error, capacity) != 0)
        return -1;
    if (!job->flags.random && safetensors_in(model))
        job->folder = model;
    return 0;
}

/* The words of --words, which are then as many as --tokens. */
static int read_prompt(llama_job *job, char *error, size_t capacity)
{
    int32_t count;
    if (!job->flags.words)
        return 0;
    if (prompt_read(job->flags.words, job->config.vocabulary, &job->given, &count, error,
                    capacity) != 0)
        return -1;
    job->flags.tokens = sweep_one(count);
    return 0;
}

/* ---- Memory -------------------------------------------------------------------------------- */

/* Bytes that the ranks of this host need for weights, and for K and V of the longest row. Files are
 * mapped, and need none; a GPU's cache is in its own memory. */
static double needed_bytes(const llama_job *job)
{
    const llama_flags *f = &job->flags;
    int64_t tokens = 0;
    for (int i = 0; i < f->tokens.count; i++)
        tokens = f->tokens.values[i] > tokens ? f->tokens.values[i] : tokens;
    double weights =
        llama_config_rank_elements(&job->config, launch.mpi && f->tensor ? launch.ranks : 1) *
        (double)element_bytes(element_dtype(f->dtype));
    double copies = launch.mpi ? launch.local_ranks : 1;
    double cache = (double)(tokens + f->new_words) *
                   llama_config_kv_bytes(&job->config, element_bytes(element_dtype(f->kv_dtype)));
    double heads = (double)job->config.heads / job->config.kv_heads;
    cache = llama_flags_gpu(f) ? 0 : cache * (f->expanded ? 1 + heads : 1);
    return (job->folder ? 0 : weights * copies) + cache;
}

static int check_memory(const llama_job *job)
{
    char text[512] = "";
    int code = EXIT_OK;
    double bytes = needed_bytes(job), gib = 0x1p-30;
    if (bytes > (double)job->machine.available_bytes)
        code = EXIT_USAGE;
    snprintf(text, sizeof text,
             "weights and cache need %.1f GiB, but this machine has %.1f GiB of memory, %.1f of it "
             "available: lower --tokens, or take another --model; --predict needs none",
             bytes * gib, (double)job->machine.memory_bytes * gib,
             (double)job->machine.available_bytes * gib);
    return fail_agree(command, code, text);
}

static int make_weights(llama_job *job)
{
    char error[1024];
    const llama_flags *f = &job->flags;
    int divided = launch.mpi && f->tensor;
    if (job->folder)
        job->weights = llama_weights_load(&job->config, job->folder, error, sizeof error);
    else
        job->weights = llama_weights_random(
            &job->config, element_dtype(f->dtype), (uint64_t)f->seed, divided ? launch.rank : 0,
            divided ? launch.ranks : 1, launch.mpi ? 1 : job->machine.cpus, (int)f->pages, error,
            sizeof error);
    return job->weights ? EXIT_OK
                        : fail_alone(command, job->folder && !launch.mpi ? EXIT_USAGE : EXIT_WRONG,
                                     "%s", error);
}

/* ---- Rows ---------------------------------------------------------------------------------- */

static int forecast_row(const llama_job *job, const llama_row *row, llama_forecast *forecasts)
{
    char error[1024];
    for (int a = 0; a < llama_flags_algorithms(&job->flags); a++)
        if (llama_forecast_make(&job->flags, &job->config, row->ranks, row->tokens, a,
                                &forecasts[a], error, sizeof error) != 0)
            return fail_alike(command, EXIT_USAGE, "%s", error);
    return EXIT_OK;
}

/* Logits that are no numbers: weights that have none, or a fault of this program. */
static int check_logits(const llama_result *result)
{
    for (int a = 0; a < result->algorithms; a++)
        if (isnan(result->steps[a].difference))
            return fail_alike(command, EXIT_WRONG,
                              "logits of %s, or of the prompt, are NaN or infinite, with %d tokens "
                              "on %d ranks: the weights must be finite numbers",
                              result->steps[a].name, (int)result->row.tokens, result->row.ranks);
    return EXIT_OK;
}

/* The file of --logits. */
static int write_logits(const llama_job *job, const llama_result *result)
{
    size_t count = (size_t)(job->flags.new_words + 1) * (size_t)job->config.vocabulary;
    if (!result->logits || launch.rank != 0)
        return EXIT_OK;
    FILE *file = fopen(job->flags.logits, "wb");
    int wrong = !file || fwrite(result->logits, sizeof *result->logits, count, file) != count;
    if (file && fclose(file) != 0)
        wrong = 1;
    return wrong ? fail_alone(command, EXIT_WRONG, "--logits cannot be written") : EXIT_OK;
}

static int run_row(llama_job *job, const llama_row *row)
{
    char error[1200];
    int code = EXIT_OK;
    llama_forecast forecasts[DECODER_ALGORITHMS];
    llama_result result = {.row = *row};
    int32_t *prompt =
        prompt_make(job->given, job->config.vocabulary, (uint64_t)job->flags.seed, row->tokens);
    llama_timing timing = {&job->flags, &job->machine, job->weights, prompt};
    if (!prompt)
        return fail_alone(command, EXIT_WRONG, "not enough memory for the prompt");
    if (job->flags.cluster)
        code = forecast_row(job, row, forecasts);
    quiet_watch watch;
    quiet_begin(&watch);
    if (code == EXIT_OK && llama_time_row(&timing, &result, error, sizeof error) != TA_OK)
        code = fail_alone(command, EXIT_WRONG, "%s", error);
    if (code == EXIT_OK) {
        result.others = quiet_others(&watch);
        job->disturbed = result.others > job->disturbed ? result.others : job->disturbed;
        summary_rows(&job->head, &result, job->flags.cluster ? forecasts : NULL);
        if (job->files.json)
            summary_json_rows(&job->json, &job->head, &result,
                              job->flags.cluster ? forecasts : NULL);
        if (job->files.csv)
            summary_csv_rows(job->files.csv, &job->head, &result);
        code = check_logits(&result);
    }
    if (code == EXIT_OK)
        code = write_logits(job, &result);
    llama_result_free(&result);
    free(prompt);
    return code;
}

static int run_rows(llama_job *job)
{
    const llama_flags *f = &job->flags;
    int code = check_memory(job);
    if (code == EXIT_OK)
        code = make_weights(job);
    if (code == EXIT_OK)
        summary_header(&job->head);
    for (int i = 0; code == EXIT_OK && i < f->ranks.count; i++)
        for (int j = 0; code == EXIT_OK && j < f->tokens.count; j++) {
            llama_row row = {.ranks = (int)f->ranks.values[i],
                             .tokens = (int32_t)f->tokens.values[j]};
            row.threads = sweep_threads(f->threads, &job->machine, row.ranks);
            code = run_row(job, &row);
        }
    if (code == EXIT_OK)
        summary_footer(&job->head, job->disturbed);
    return code;
}

static int predict_rows(llama_job *job)
{
    char error[1024];
    const llama_flags *f = &job->flags;
    int ranks = llama_forecast_ranks(f->cluster, error, sizeof error), code = EXIT_OK;
    if (!ranks)
        return fail_alike(command, EXIT_USAGE, "%s", error);
    summary_forecast_header(&job->head);
    for (int j = 0; code == EXIT_OK && j < f->tokens.count; j++) {
        llama_row row = {.ranks = ranks, .tokens = (int32_t)f->tokens.values[j]};
        llama_forecast forecasts[DECODER_ALGORITHMS];
        code = forecast_row(job, &row, forecasts);
        for (int a = 0; code == EXIT_OK && a < llama_flags_algorithms(f); a++) {
            const char *name = llama_flags_algorithm_word(f, a);
            summary_forecast(&row, name, &forecasts[a], &forecasts[0], f->new_words);
            if (job->files.json)
                summary_json_forecast(&job->json, &row, name, &forecasts[a]);
        }
    }
    return code;
}

/* The device that was asked for, or why it is not here. */
static int try_device(const llama_job *job)
{
    char error[1024] = "";
    ta_device *device;
    const void *table;
    if (job->flags.predict || !llama_flags_gpu(&job->flags))
        return EXIT_OK;
    ta_status status = ta_device_open(job->flags.device, NULL, &device);
    if (status == TA_OK) {
        status = ta_device_extension(device, TA_MODEL_NAME, TA_MODEL_VERSION, &table);
        ta_device_close(device);
    }
    if (status != TA_OK)
        snprintf(error, sizeof error, "--device is %s: %s", job->flags.device, ta_last_error());
    return fail_agree(command, status == TA_OK ? EXIT_OK : EXIT_NO_DEVICE, error);
}

/* ---- The command --------------------------------------------------------------------------- */

static int open_files(llama_job *job)
{
    char error[512] = "";
    int code = run_files_open(&job->files, job->flags.json, job->flags.csv, error, sizeof error);
    code = fail_agree(command, code, error);
    if (code == EXIT_OK && job->files.json) {
        json_init(&job->json, job->files.json);
        summary_json_begin(&job->json, &job->head);
    }
    if (code == EXIT_OK && job->files.csv)
        summary_csv_head(job->files.csv);
    return code;
}

/* Where the ranks of the largest row are. */
static int find_places(llama_job *job)
{
    const llama_flags *f = &job->flags;
    for (int i = 0; i < f->ranks.count; i++)
        if (f->ranks.values[i] > job->head.ranks)
            job->head.ranks = (int)f->ranks.values[i];
    job->places = places_find(f->device, llama_flags_gpu_each(f), job->head.ranks);
    job->head.places = job->places;
    return job->places ? EXIT_OK
                       : fail_alone(command, EXIT_WRONG, "not enough memory for the list of ranks");
}

static int run(llama_job *job, int argc, char **argv)
{
    char error[1024] = "";
    int code = EXIT_OK;
    const char *matmul = llama_flags_gpu(&job->flags) ? "own" : job->flags.matmul;
    if (find_model(job, error, sizeof error) != 0 || read_prompt(job, error, sizeof error) != 0 ||
        products_use(matmul, error, sizeof error) != 0)
        code = EXIT_USAGE;
    code = fail_agree(command, code, error);
    if (code != EXIT_OK)
        return code;
    machine_read(&job->machine);
    job->head = (llama_head){.flags = &job->flags,
                             .machine = &job->machine,
                             .config = &job->config,
                             .weights = job->folder ? job->folder : "random weights",
                             .argc = argc,
                             .argv = argv};
    if (!job->flags.predict && find_places(job) != EXIT_OK)
        return EXIT_WRONG;
    code = open_files(job);
    if (code == EXIT_OK)
        code = job->flags.predict ? predict_rows(job) : run_rows(job);
    if (job->files.json) {
        summary_json_end(&job->json);
        fputc('\n', job->files.json);
    }
    if (run_files_close(&job->files, error, sizeof error) != EXIT_OK && code == EXIT_OK)
        code = fail_alone(command, EXIT_WRONG, "%s", error);
    return code;
}

int llama_command(int argc, char **argv)
{
    char error[512];
    llama_job job = {0};
    if (llama_flags_parse(argc, argv, &job.flags, error, sizeof error) != 0)
        return fail_alike(command, EXIT_USAGE, "%s", error);
    if (job.flags.help) {
        llama_flags_help(stdout);
        return EXIT_OK;
    }
    element_init();
    int code = try_device(&job);
    if (code == EXIT_OK)
        code = run(&job, argc, argv);
    llama_weights_free(job.weights);
    free(job.given);
    free(job.places);
    return code;
}
