/* Command-line flags as a table: a command lists its flags with the place where each value goes,
 * and args_parse() does the rest. An error names the flag, the value and what would be right.
 * decode/options.c has the one table there is. */
#ifndef BENCH_ARGS_H
#define BENCH_ARGS_H

#include <stddef.h>
#include <stdint.h>

#define ARG_LIST_MAX 16

/* Numbers separated by commas; for words, their indices in the flag's choices. */
typedef struct arg_list {
    int count;
    int64_t values[ARG_LIST_MAX];
} arg_list;

typedef enum arg_kind {
    ARG_INT,    /* int64_t; the suffixes k and M multiply by 1024 and 1024² */
    ARG_INTS,   /* arg_list of such numbers */
    ARG_CHOICE, /* int64_t: the index of a word in `choices` */
    ARG_CHOICES,
    ARG_TEXT, /* const char *, not copied */
    ARG_HELP  /* int64_t, set to 1; takes no value */
} arg_kind;

typedef struct arg_flag {
    char letter;      /* "-n", or 0 */
    const char *name; /* "--iterations" without the dashes */
    arg_kind kind;
    void *target;
    int64_t min, max;           /* of each number */
    const char *const *choices; /* ends with NULL */
    const char *value_name;     /* how the help calls the value */
    const char *help;
} arg_flag;

/* Read argv[0] … argv[argc - 1] into the targets. `flags` ends with a flag whose name is NULL.
 * Returns 0, or -1 with a sentence in `error`. Flags are "--name value", "--name=value", "-n
 * value", "-n=value" and "-nvalue"; the last of several wins. */
int args_parse(const arg_flag *flags, int argc, char **argv, char *error, size_t capacity);

/* Read one number of an ARG_INT flag. Returns 0, or -1 if it is none. */
int args_number(const char *text, size_t length, int64_t *number);

#endif
