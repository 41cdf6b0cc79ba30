/* The flag parser: find the flag, find its value, convert it. See args.h for the table and the
 * forms that a flag can take; decode/options.c for what is checked across flags. */
#include "args.h"

#include <stdio.h>
#include <string.h>

typedef struct arg_error {
    char *text;
    size_t capacity;
} arg_error;

int args_number(const char *text, size_t length, int64_t *number)
{
    int64_t value = 0, unit = 1;
    if (length > 1 && (text[length - 1] == 'k' || text[length - 1] == 'K'))
        unit = 1024;
    else if (length > 1 && text[length - 1] == 'M')
        unit = 1024 * 1024;
    if (unit > 1)
        length--;
    if (length == 0)
        return -1;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, text[i] - '0', &value))
            return -1;
    }
    return __builtin_mul_overflow(value, unit, number) ? -1 : 0;
}

static int read_number(const arg_flag *flag, const char *text, size_t length, int64_t *number,
                       arg_error *error)
{
    if (args_number(text, length, number) == 0 && *number >= flag->min && *number <= flag->max)
        return 0;
    snprintf(error->text, error->capacity,
             "--%s is '%.*s', but must be a whole number from %lld to %lld (k is 1024, M is 1024²)",
             flag->name, (int)length, text, (long long)flag->min, (long long)flag->max);
    return -1;
}

static int read_choice(const arg_flag *flag, const char *text, size_t length, int64_t *index,
                       arg_error *error)
{
    char words[256] = "";
    for (int i = 0; flag->choices[i]; i++) {
        const char *word = flag->choices[i];
        if (strlen(word) == length && memcmp(word, text, length) == 0) {
            *index = i;
            return 0;
        }
        size_t used = strlen(words);
        snprintf(words + used, sizeof words - used, "%s%s", i ? ", " : "", word);
    }
    snprintf(error->text, error->capacity, "--%s is '%.*s', but must be one of: %s", flag->name,
             (int)length, text, words);
    return -1;
}

static int read_one(const arg_flag *flag, const char *text, size_t length, int64_t *value,
                    arg_error *error)
{
    if (flag->kind == ARG_INT || flag->kind == ARG_INTS)
        return read_number(flag, text, length, value, error);
    return read_choice(flag, text, length, value, error);
}

static int read_list(const arg_flag *flag, const char *text, arg_error *error)
{
    arg_list list = {0};
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (list.count == ARG_LIST_MAX) {
            snprintf(error->text, error->capacity, "--%s has more than %d values: '%s'", flag->name,
                     ARG_LIST_MAX, text);
            return -1;
        }
        if (read_one(flag, at, length, &list.values[list.count++], error) != 0)
            return -1;
        at += length;
        if (*at == '\0')
            break;
    }
    *(arg_list *)flag->target = list;
    return 0;
}

static int read_value(const arg_flag *flag, const char *text, arg_error *error)
{
    switch (flag->kind) {
    case ARG_INTS:
    case ARG_CHOICES:
        return read_list(flag, text, error);
    case ARG_TEXT:
        if (text[0] == '\0') {
            snprintf(error->text, error->capacity, "--%s is empty, but must be %s", flag->name,
                     flag->value_name);
            return -1;
        }
        *(const char **)flag->target = text;
        return 0;
    default: {
        int64_t value;
        if (read_one(flag, text, strlen(text), &value, error) != 0)
            return -1;
        *(int64_t *)flag->target = value;
        return 0;
    }
    }
}

/* The flag that `arg` names, and its value if `arg` has that too. */
static const arg_flag *find(const arg_flag *flags, const char *arg, const char **value)
{
    for (const arg_flag *flag = flags; flag->name; flag++) {
        size_t length = strlen(flag->name);
        if (arg[1] == '-' && strncmp(arg + 2, flag->name, length) == 0 &&
            (arg[2 + length] == '\0' || arg[2 + length] == '=')) {
            *value = arg[2 + length] ? arg + 3 + length : NULL;
            return flag;
        }
        if (flag->letter && arg[1] == flag->letter) {
            *value = arg[2] ? arg + 2 + (arg[2] == '=') : NULL;
            return flag;
        }
    }
    return NULL;
}

static void unknown_flag(const arg_flag *flags, const char *arg, arg_error *error)
{
    const char *name = arg + strspn(arg, "-");
    size_t length = strcspn(name, "=");
    for (const arg_flag *flag = flags; length > 1 && flag->name; flag++) {
        size_t shorter = strlen(flag->name) < length ? strlen(flag->name) : length;
        if (strncmp(flag->name, name, shorter) == 0) {
            snprintf(error->text, error->capacity, "unknown flag '%s'; did you mean '--%s'?", arg,
                     flag->name);
            return;
        }
    }
    snprintf(error->text, error->capacity, "unknown flag '%s'", arg);
}

int args_parse(const arg_flag *flags, int argc, char **argv, char *error_text, size_t capacity)
{
    arg_error error = {error_text, capacity};
    for (int i = 0; i < argc; i++) {
        const char *value = NULL;
        if (argv[i][0] != '-' || argv[i][1] == '\0') {
            snprintf(error.text, error.capacity, "unexpected argument '%s'; flags start with -",
                     argv[i]);
            return -1;
        }
        const arg_flag *flag = find(flags, argv[i], &value);
        if (!flag) {
            unknown_flag(flags, argv[i], &error);
            return -1;
        }
        if (flag->kind == ARG_HELP) {
            *(int64_t *)flag->target = 1;
            continue;
        }
        if (!value && i + 1 == argc) {
            snprintf(error.text, error.capacity, "--%s needs a value: %s", flag->name,
                     flag->value_name);
            return -1;
        }
        if (read_value(flag, value ? value : argv[++i], &error) != 0)
            return -1;
    }
    return 0;
}
