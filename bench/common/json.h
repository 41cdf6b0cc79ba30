/* A JSON writer: values in order, commas and indentation looked after. */
#ifndef BENCH_JSON_H
#define BENCH_JSON_H

#include <stdint.h>
#include <stdio.h>

typedef struct json_writer {
    FILE *file;
    int depth;
    int empty; /* nothing written yet at this depth */
} json_writer;

void json_init(json_writer *json, FILE *file);

/* `name` is NULL inside an array and at the top. */
void json_open(json_writer *json, const char *name, char bracket); /* '{' or '[' */
void json_close(json_writer *json, char bracket);                  /* '}' or ']' */
void json_string(json_writer *json, const char *name, const char *value);
void json_int(json_writer *json, const char *name, int64_t value);
void json_truth(json_writer *json, const char *name, int value); /* true or false */
/* null if it is not finite, which JSON cannot say. */
void json_double(json_writer *json, const char *name, double value);
/* An array on one line. */
void json_doubles(json_writer *json, const char *name, const double *values, int count);

#endif
