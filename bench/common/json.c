/* The JSON writer; see json.h. */
#include "json.h"

#include <math.h>

void json_init(json_writer *json, FILE *file)
{
    *json = (json_writer){file, 0, 1};
}

static void write_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", file);
        else if (c < 0x20)
            fprintf(file, "\\u%04x", c);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

static void write_double(FILE *file, double value)
{
    if (isfinite(value))
        fprintf(file, "%.9g", value);
    else
        fputs("null", file);
}

static void start_value(json_writer *json, const char *name)
{
    if (!json->empty)
        fputc(',', json->file);
    if (json->depth)
        fprintf(json->file, "\n%*s", 2 * json->depth, "");
    json->empty = 0;
    if (name) {
        write_string(json->file, name);
        fputs(": ", json->file);
    }
}

void json_open(json_writer *json, const char *name, char bracket)
{
    start_value(json, name);
    fputc(bracket, json->file);
    json->depth++;
    json->empty = 1;
}

void json_close(json_writer *json, char bracket)
{
    json->depth--;
    if (!json->empty)
        fprintf(json->file, "\n%*s", 2 * json->depth, "");
    json->empty = 0;
    fputc(bracket, json->file);
    if (json->depth == 0)
        fputc('\n', json->file);
}

void json_string(json_writer *json, const char *name, const char *value)
{
    start_value(json, name);
    write_string(json->file, value);
}

void json_int(json_writer *json, const char *name, int64_t value)
{
    start_value(json, name);
    fprintf(json->file, "%lld", (long long)value);
}

void json_truth(json_writer *json, const char *name, int value)
{
    start_value(json, name);
    fputs(value ? "true" : "false", json->file);
}

void json_double(json_writer *json, const char *name, double value)
{
    start_value(json, name);
    write_double(json->file, value);
}

void json_doubles(json_writer *json, const char *name, const double *values, int count)
{
    start_value(json, name);
    fputc('[', json->file);
    for (int i = 0; i < count; i++) {
        fputs(i ? ", " : "", json->file);
        write_double(json->file, values[i]);
    }
    fputc(']', json->file);
}
