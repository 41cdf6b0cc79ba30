/* `treeattn-bench llama`: flags.c has the flags; this file finds the model, makes or loads its
 * weights and goes through the rows: timing.c runs one, summary.c prints it, forecast.c
 * predicts it. Under mpirun every process runs all of it in step with the others, and the first
 * one prints. */
#include "llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/elements.h"
#include "common/exit_code.h"
#include "common/launch.h"
#include "common/sweep.h"
#include "products.h"
#include "safetensors.h"
#include "summary.h"

typedef struct llama_job {
    llama_flags flags;
    bench_machine machine;
    llama_config config;
    const char *folder; /* with safetensors files; NULL: random weights */
    llama_weights *weights;
    int32_t *given; /* the prompt of --words */
    int32_t given_count;
    llama_head head;
    FILE *file;
    json_writer json;
} llama_job;

/* What all processes find at once: each ends by itself, and one of them says why. */
static int fail_alike(int code, const char *text)
{
    if (launch.rank == 0)
        fprintf(stderr, "treeattn-bench: %s\n%s", text,
                code == EXIT_USAGE ? "Try 'treeattn-bench llama --help'.\n" : "");
    return code;
}

/* What one process may find alone: it ends all of them. */
static int fail(int code, const char *text)
{
    if (code == EXIT_USAGE)
        return fail_alike(code, text);
    fprintf(stderr, "treeattn-bench: %s\n", text);
    if (launch.mpi)
        launch_abort(code);
    return code;
}

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

/* Numbers with space or commas between them. */
static int read_words(llama_job *job, char *error, size_t capacity)
{
    size_t length;
    const char *path = job->flags.words;
    if (!path)
        return 0;
    char *text = llama_read_text(path, &length, error, capacity);
    if (!text)
        return -1;
    job->given = calloc(length / 2 + 2, sizeof *job->given);
    int64_t word = 0;
    char *at = text + strspn(text, " ,\n\r\t");
    while (job->given && *at) {
        size_t digits = strcspn(at, " ,\n\r\t");
        if (args_number(at, digits, &word) != 0 || word >= job->config.vocabulary)
            break;
        job->given[job->given_count++] = (int32_t)word;
        at += digits;
        at += strspn(at, " ,\n\r\t");
    }
    int whole = job->given && *at == '\0' && job->given_count > 0;
    if (!whole)
        snprintf(
            error, capacity,
            "--words is '%s', which must have whole numbers from 0 to %d: number %d is not one",
            path, (int)job->config.vocabulary - 1, (int)job->given_count + 1);
    else
        job->flags.tokens = sweep_one(job->given_count);
    free(text);
    return whole ? 0 : -1;
}

/* A prompt of so many words: the given one, or words by chance. NULL without memory. */
static int32_t *make_prompt(const llama_job *job, int32_t tokens)
{
    int32_t *prompt = calloc((size_t)tokens, sizeof *prompt);
    uint64_t state = (uint64_t)job->flags.seed + 1;
    for (int32_t i = 0; prompt && i < tokens; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        prompt[i] = job->given ? job->given[i]
                               : (int32_t)((state >> 33) % (uint64_t)job->config.vocabulary);
    }
    return prompt;
}

/* ---- Memory -------------------------------------------------------------------------------- */

/* Bytes that the ranks of this host need for weights, and for K and V of the longest row. Files are
 * mapped, and need none. */
static double needed_bytes(const llama_job *job)
{
    const llama_flags *f = &job->flags;
    int64_t tokens = 0;
    for (int i = 0; i < f->tokens.count; i++)
        tokens = f->tokens.values[i] > tokens ? f->tokens.values[i] : tokens;
    double weights =
        llama_config_elements(&job->config) * (double)element_bytes(element_dtype(f->dtype));
    double copies = launch.mpi && !f->tensor ? launch.local_ranks : 1;
    double cache = (double)(tokens + f->new_words) *
                   llama_config_kv_bytes(&job->config, element_bytes(element_dtype(f->kv_dtype)));
    return (job->folder ? 0 : weights * copies) + cache;
}

static int check_memory(const llama_job *job)
{
    char text[512];
    double bytes = needed_bytes(job), gib = 0x1p-30;
    if (bytes <= (double)job->machine.available_bytes)
        return EXIT_OK;
    snprintf(text, sizeof text,
             "weights and cache need %.1f GiB, but this machine has %.1f GiB of memory, %.1f of it "
             "available: lower --tokens, or take another --model; --predict needs none",
             bytes * gib, (double)job->machine.memory_bytes * gib,
             (double)job->machine.available_bytes * gib);
    return fail(EXIT_USAGE, text);
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
                        : fail(job->folder && !launch.mpi ? EXIT_USAGE : EXIT_WRONG, error);
}

/* ---- Rows ---------------------------------------------------------------------------------- */

static int forecast_row(const llama_job *job, const llama_row *row, llama_forecast *forecasts)
{
    char error[1024];
    for (int a = 0; a < job->flags.algorithms.count; a++)
        if (llama_forecast_make(&job->flags, &job->config, row->ranks, row->tokens,
                                llama_flags_algorithm(&job->flags, a), &forecasts[a], error,
                                sizeof error) != 0)
            return fail(EXIT_USAGE, error);
    return EXIT_OK;
}

static int run_row(llama_job *job, const llama_row *row)
{
    char error[1200];
    int code = EXIT_OK;
    llama_forecast forecasts[DECODER_ALGORITHMS];
    llama_result result = {.row = *row};
    int32_t *prompt = make_prompt(job, row->tokens);
    llama_timing timing = {&job->flags, &job->machine, job->weights, prompt};
    if (!prompt)
        return fail(EXIT_WRONG, "not enough memory for the prompt");
    if (job->flags.cluster)
        code = forecast_row(job, row, forecasts);
    if (code == EXIT_OK && llama_time_row(&timing, &result, error, sizeof error) != TA_OK)
        code = fail(EXIT_WRONG, error);
    if (code == EXIT_OK) {
        summary_rows(&job->head, &result, job->flags.cluster ? forecasts : NULL);
        if (job->file)
            summary_json_rows(&job->json, &job->head, &result,
                              job->flags.cluster ? forecasts : NULL);
    }
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
        summary_footer(&job->head);
    return code;
}

static int predict_rows(llama_job *job)
{
    char error[1024];
    const llama_flags *f = &job->flags;
    int ranks = llama_forecast_ranks(f->cluster, error, sizeof error), code = EXIT_OK;
    if (!ranks)
        return fail(EXIT_USAGE, error);
    summary_forecast_header(&job->head);
    for (int j = 0; code == EXIT_OK && j < f->tokens.count; j++) {
        llama_row row = {.ranks = ranks, .tokens = (int32_t)f->tokens.values[j]};
        llama_forecast forecasts[DECODER_ALGORITHMS];
        code = forecast_row(job, &row, forecasts);
        for (int a = 0; code == EXIT_OK && a < f->algorithms.count; a++) {
            ta_algorithm algorithm = llama_flags_algorithm(f, a);
            summary_forecast(&row, algorithm, &forecasts[a], &forecasts[0], f->new_words);
            if (job->file)
                summary_json_forecast(&job->json, &row, algorithm, &forecasts[a]);
        }
    }
    return code;
}

/* ---- The command --------------------------------------------------------------------------- */

static int open_json(llama_job *job)
{
    if (!job->flags.json || launch.rank != 0)
        return EXIT_OK;
    job->file = fopen(job->flags.json, "w");
    if (!job->file)
        return fail(EXIT_WRONG, "--json cannot be written");
    json_init(&job->json, job->file);
    summary_json_begin(&job->json, &job->head);
    return EXIT_OK;
}

static int run(llama_job *job, int argc, char **argv)
{
    char error[1024];
    if (find_model(job, error, sizeof error) != 0 || read_words(job, error, sizeof error) != 0 ||
        products_use(job->flags.matmul, error, sizeof error) != 0)
        return fail(EXIT_USAGE, error);
    machine_read(&job->machine);
    job->head = (llama_head){&job->flags,  &job->machine,
                             &job->config, job->folder ? job->folder : "random weights",
                             argc,         argv};
    int code = open_json(job);
    if (code == EXIT_OK)
        code = job->flags.predict ? predict_rows(job) : run_rows(job);
    if (job->file) {
        summary_json_end(&job->json);
        fputc('\n', job->file);
        if (fclose(job->file) != 0 && code == EXIT_OK)
            code = fail(EXIT_WRONG, "--json could not be written");
    }
    return code;
}

int llama_command(int argc, char **argv)
{
    char error[512];
    llama_job job = {0};
    if (llama_flags_parse(argc, argv, &job.flags, error, sizeof error) != 0)
        return fail(EXIT_USAGE, error);
    if (job.flags.help) {
        llama_flags_help(stdout);
        return EXIT_OK;
    }
    if (strcmp(job.flags.device, "host") != 0)
        return fail_alike(EXIT_NO_DEVICE, "--device must be host: norms, rotations and products of "
                                          "a layer are not there on GPUs yet");
    element_init();
    int code = run(&job, argc, argv);
    llama_weights_free(job.weights);
    free(job.given);
    return code;
}
