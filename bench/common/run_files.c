/* See run_files.h. */
#include "run_files.h"

#include <string.h>
#include <unistd.h>

#include "exit_code.h"
#include "launch.h"

static FILE *open_json(const char *path)
{
    if (strcmp(path, "-") != 0)
        return fopen(path, "w");
    fflush(stdout);
    int output = dup(STDOUT_FILENO);
    if (output < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return NULL;
    return fdopen(output, "w");
}

int run_files_open(run_files *files, const char *json, const char *csv, char *error,
                   size_t capacity)
{
    *files = (run_files){NULL, NULL};
    if (launch.rank != 0)
        return EXIT_OK;
    if (json && !(files->json = open_json(json))) {
        snprintf(error, capacity, "--json is '%s', which cannot be written", json);
        return EXIT_USAGE;
    }
    if (csv && !(files->csv = fopen(csv, "w"))) {
        snprintf(error, capacity, "--csv is '%s', which cannot be written", csv);
        return EXIT_USAGE;
    }
    return EXIT_OK;
}

static int could_not(FILE **file)
{
    int failed = *file && (ferror(*file) | fclose(*file)) != 0;
    *file = NULL;
    return failed;
}

int run_files_close(run_files *files, char *error, size_t capacity)
{
    int json = could_not(&files->json), csv = could_not(&files->csv);
    if (json || csv)
        snprintf(error, capacity, "the file of %s could not be written", json ? "--json" : "--csv");
    return json || csv ? EXIT_WRONG : EXIT_OK;
}
