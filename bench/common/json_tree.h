/* A JSON reader for files that others wrote: strict about the grammar, bounded in depth, and with
 * an error that says where. The writer is json.h. llama/config.c and llama/safetensors.c read with
 * it. */
#ifndef BENCH_JSON_TREE_H
#define BENCH_JSON_TREE_H

#include <stddef.h>
#include <stdint.h>

typedef enum json_kind {
    JSON_NULL,
    JSON_TRUE,
    JSON_FALSE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
} json_kind;

typedef struct json_item json_item;
struct json_item {
    json_kind kind;
    int is_whole; /* a number without fraction and exponent that an int64_t holds */
    int64_t whole;
    double number;
    const char *text;        /* of a string, unescaped */
    const char *name;        /* of a member of an object */
    json_item *first, *next; /* members or elements, in their order */
};

typedef struct json_tree {
    json_item *root;
    char *copy; /* of the text; strings are in it */
} json_tree;

/* Read text[0, length), which is one value with nothing but space behind it. Returns 0, or -1 with
 * a sentence in `error`, and then there is nothing to free. */
int json_tree_read(json_tree *tree, const char *text, size_t length, char *error, size_t capacity);
void json_tree_free(json_tree *tree);

/* The member of that name, the first if there are several; NULL if there is none, or if `object` is
 * no object. */
const json_item *json_find(const json_item *object, const char *name);

#endif
