/* A small reader of JSON, for what the library writes: strict about its grammar, so that text which
 * a user's parser would refuse fails a test. Values live in the document; strings are unescaped. */
#ifndef TEST_JSON_H
#define TEST_JSON_H

#include <stddef.h>

typedef enum json_kind {
    JSON_NULL,
    JSON_TRUE,
    JSON_FALSE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
} json_kind;

typedef struct json_value json_value;
struct json_value {
    json_kind kind;
    double number;
    char *string;
    char *name; /* of a member of an object */
    json_value *first, *next;
};

/* NULL if it is not one value with nothing behind it. Free it with json_free(). */
json_value *json_read(const char *text);
void json_free(json_value *value);

/* NULL if there is none. */
const json_value *json_member(const json_value *object, const char *name);

/* The text of an explanation (ta_explain_json(), ta_attention_explain_json()): NULL if it is JSON
 * with exactly one candidate chosen, which is what the plan runs, and calls and steps that add up;
 * otherwise what is wrong. `candidates` is how many it must have; 0: none may be there. */
const char *explanation_fault(const char *text, int *candidates);

#endif
