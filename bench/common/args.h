/* Command-line flags as tables: a command lists its flags with the field of its options where
 * each value goes, args_parse() reads them and args_print() is the help. An error names the
 * flag, the value and what would be right. sweep.c has the flags that commands share, each
 * command its own. */
#ifndef BENCH_ARGS_H
#define BENCH_ARGS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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
    ARG_TEXT,  /* const char *, not copied */
    ARG_SET,   /* int64_t, set to 1; takes no value */
    ARG_SWITCH /* likewise; a number that follows is taken too: 0 sets it to 0, others to 1 */
} arg_kind;

typedef struct arg_flag {
    char letter;      /* "-n", or 0 */
    const char *name; /* "--iterations" without the dashes */
    arg_kind kind;
    size_t at;                  /* where the field is: offsetof() in the options */
    int64_t min, max;           /* of each number */
    const char *const *choices; /* ends with NULL */
    const char *value_name;     /* how the help calls the value */
    const char *help;
    const char *absent; /* what holds without it, if the field's default does not say so; or NULL */
} arg_flag;

/* The rows of a table. AT() is the table's own: where a field of its options is. Behind the help
 * may come what holds without the flag. */
#define FLAG_INT(letter, name, field, min, max, value, ...)                                        \
    FLAG_ROW(letter, name, ARG_INT, field, min, max, NULL, value, __VA_ARGS__)
#define FLAG_INTS(letter, name, field, min, max, value, ...)                                       \
    FLAG_ROW(letter, name, ARG_INTS, field, min, max, NULL, value, __VA_ARGS__)
#define FLAG_CHOICE(letter, name, field, choices, value, ...)                                      \
    FLAG_ROW(letter, name, ARG_CHOICE, field, 0, 0, choices, value, __VA_ARGS__)
#define FLAG_CHOICES(letter, name, field, choices, value, ...)                                     \
    FLAG_ROW(letter, name, ARG_CHOICES, field, 0, 0, choices, value, __VA_ARGS__)
#define FLAG_TEXT(letter, name, field, value, ...)                                                 \
    FLAG_ROW(letter, name, ARG_TEXT, field, 0, 0, NULL, value, __VA_ARGS__)
#define FLAG_SET(letter, name, field, ...)                                                         \
    FLAG_ROW(letter, name, ARG_SET, field, 0, 0, NULL, "", __VA_ARGS__)
#define FLAG_SWITCH(letter, name, field, ...)                                                      \
    FLAG_ROW(letter, name, ARG_SWITCH, field, 0, 0, NULL, "[N]", __VA_ARGS__)
#define FLAG_ROW(flag, text, of_kind, field, least, most, words, value, ...)                       \
    {                                                                                              \
        .letter = (flag), .name = (text), .kind = (of_kind), .at = AT(field), .min = (least),      \
        .max = (most), .choices = (words), .value_name = (value), .help = __VA_ARGS__              \
    }

/* Those that commands have in the same words. */
#define FLAG_HELP(field) FLAG_SET('h', "help", field, "print this")
#define FLAG_WIDE(field)                                                                           \
    FLAG_SET(0, "wide", field, "every column; without it 100 characters a line")
#define FLAG_CSV(field)                                                                            \
    FLAG_TEXT(0, "csv", field, "FILE",                                                             \
              "also write the rows there, with commas between their columns")
#define FLAG_LINK(field)                                                                           \
    FLAG_TEXT(0, "link", field, "DELAY,RATE",                                                      \
              "put every rank on a node of its own, joined by emulated links, such as "            \
              "50us,1.25GB/s")

/* Read argv[0] … argv[argc - 1] into `options`, which has the defaults. `tables` ends with NULL,
 * each of them with a flag whose name is NULL. Returns 0, or -1 with a sentence in `error`.
 * Flags are "--name value", "--name=value", "-n value", "-n=value" and "-nvalue"; the last of
 * several wins. */
int args_parse(const arg_flag *const *tables, void *options, int argc, char **argv, char *error,
               size_t capacity);

/* The help of each flag, with its default, which is what `defaults` has. */
void args_print(FILE *file, const arg_flag *const *tables, const void *defaults);

/* Read one number of an ARG_INT flag. Returns 0, or -1 if it is none. */
int args_number(const char *text, size_t length, int64_t *number);

/* Letters to change, add or drop until one word is the other, neighbours swapped included. Words of
 * more than 24 letters are far from all others. */
int args_distance(const char *a, const char *b);

#endif
