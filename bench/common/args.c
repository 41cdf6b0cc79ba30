/* The flag parser: find the flag, find its value, convert it; and the help. See args.h for the
 * tables and the forms that a flag can take; decode/options.c for what is checked across flags. */
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

static int read_list(const arg_flag *flag, const char *text, void *field, arg_error *error)
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
    *(arg_list *)field = list;
    return 0;
}

static int read_value(const arg_flag *flag, const char *text, void *field, arg_error *error)
{
    switch (flag->kind) {
    case ARG_INTS:
    case ARG_CHOICES:
        return read_list(flag, text, field, error);
    case ARG_TEXT:
        if (text[0] == '\0') {
            snprintf(error->text, error->capacity, "--%s is empty, but must be %s", flag->name,
                     flag->value_name);
            return -1;
        }
        *(const char **)field = text;
        return 0;
    default: {
        int64_t value;
        if (read_one(flag, text, strlen(text), &value, error) != 0)
            return -1;
        *(int64_t *)field = value;
        return 0;
    }
    }
}

/* The flags of all tables, one after the other: `*tables` is where the walk has come. */
static const arg_flag *first(const arg_flag *const **tables)
{
    while (**tables && !(**tables)->name)
        ++*tables;
    return **tables;
}

static const arg_flag *next(const arg_flag *const **tables, const arg_flag *flag)
{
    if ((++flag)->name)
        return flag;
    ++*tables;
    return first(tables);
}

/* The flag that `arg` names, and its value if `arg` has that too. */
static const arg_flag *find(const arg_flag *const *tables, const char *arg, const char **value)
{
    for (const arg_flag *flag = first(&tables); flag; flag = next(&tables, flag)) {
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

int args_distance(const char *a, const char *b)
{
    enum { LONGEST = 24 };
    int cost[LONGEST + 1][LONGEST + 1];
    int rows = (int)strlen(a), columns = (int)strlen(b);
    if (rows > LONGEST || columns > LONGEST)
        return LONGEST;
    for (int i = 0; i <= rows; i++)
        for (int j = 0; j <= columns; j++) {
            int least = i == 0 ? j : j == 0 ? i : cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (i > 0 && j > 0) {
                int shorter = cost[i - 1][j] < cost[i][j - 1] ? cost[i - 1][j] : cost[i][j - 1];
                least = shorter + 1 < least ? shorter + 1 : least;
            }
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                cost[i - 2][j - 2] + 1 < least)
                least = cost[i - 2][j - 2] + 1;
            cost[i][j] = least;
        }
    return cost[rows][columns];
}

/* The flag that was meant: one that begins like it, or the nearest if that is near. */
static const arg_flag *nearest_flag(const arg_flag *const *tables, const char *name)
{
    const arg_flag *best = NULL;
    size_t length = strlen(name);
    int least = length > 3 ? 3 : 2;
    for (const arg_flag *flag = first(&tables); length > 1 && flag; flag = next(&tables, flag)) {
        size_t shorter = strlen(flag->name) < length ? strlen(flag->name) : length;
        if (strncmp(flag->name, name, shorter) == 0)
            return flag;
        int letters = args_distance(name, flag->name);
        if (letters < least) {
            least = letters;
            best = flag;
        }
    }
    return best;
}

static void unknown_flag(const arg_flag *const *tables, const char *arg, arg_error *error)
{
    char name[32];
    const char *word = arg + strspn(arg, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    const arg_flag *meant = nearest_flag(tables, name);
    snprintf(error->text, error->capacity,
             meant ? "unknown flag '%s'; did you mean '--%s'?" : "unknown flag '%s'", arg,
             meant ? meant->name : "");
}

int args_parse(const arg_flag *const *tables, void *options, int argc, char **argv,
               char *error_text, size_t capacity)
{
    arg_error error = {error_text, capacity};
    for (int i = 0; i < argc; i++) {
        const char *value = NULL;
        if (argv[i][0] != '-' || argv[i][1] == '\0') {
            snprintf(error.text, error.capacity, "unexpected argument '%s'; flags start with -",
                     argv[i]);
            return -1;
        }
        const arg_flag *flag = find(tables, argv[i], &value);
        if (!flag) {
            unknown_flag(tables, argv[i], &error);
            return -1;
        }
        void *field = (char *)options + flag->at;
        if (flag->kind == ARG_SET) {
            if (value) {
                snprintf(error.text, error.capacity, "--%s takes no value, but got '%s'",
                         flag->name, value);
                return -1;
            }
            *(int64_t *)field = 1;
            continue;
        }
        if (flag->kind == ARG_SWITCH) {
            int64_t number = 1;
            const char *next_word = value ? value : i + 1 < argc ? argv[i + 1] : "";
            if (args_number(next_word, strlen(next_word), &number) == 0)
                i += !value;
            else if (value) {
                snprintf(error.text, error.capacity,
                         "--%s is '%s', but must be a number or nothing", flag->name, value);
                return -1;
            }
            *(int64_t *)field = number != 0;
            continue;
        }
        if (!value && i + 1 == argc) {
            snprintf(error.text, error.capacity, "--%s needs a value: %s", flag->name,
                     flag->value_name);
            return -1;
        }
        if (read_value(flag, value ? value : argv[++i], field, &error) != 0)
            return -1;
    }
    return 0;
}

/* ---- The help ------------------------------------------------------------------------------ */

static void describe_number(char *text, size_t capacity, int64_t number)
{
    int thousands = number >= 1024 && number % 1024 == 0;
    snprintf(text, capacity, thousands ? "%lldk" : "%lld",
             (long long)(thousands ? number / 1024 : number));
}

/* One value of the field, as it would be written. */
static void describe_one(const arg_flag *flag, int64_t value, char *text, size_t capacity)
{
    if (flag->choices)
        snprintf(text, capacity, "%s", flag->choices[value]);
    else
        describe_number(text, capacity, value);
}

static void describe_list(const arg_flag *flag, const arg_list *list, char *text, size_t capacity)
{
    text[0] = '\0';
    for (int i = 0; i < list->count; i++) {
        size_t used = strlen(text);
        used += (size_t)snprintf(text + used, capacity - used, "%s", i ? "," : "");
        describe_one(flag, list->values[i], text + used, capacity - used);
    }
}

/* What holds if the flag is not given: what the field has, or what the table says if that is
 * nothing. */
static void describe_default(const arg_flag *flag, const void *field, char *text, size_t capacity)
{
    const char *absent = flag->absent ? flag->absent : "";
    if (flag->kind == ARG_SET || flag->kind == ARG_SWITCH) {
        text[0] = '\0';
    } else if (flag->kind == ARG_TEXT) {
        const char *value = *(const char *const *)field;
        snprintf(text, capacity, "%s", value ? value : absent);
    } else if (flag->kind == ARG_INT || flag->kind == ARG_CHOICE) {
        int64_t value = *(const int64_t *)field;
        if (value == 0 && flag->absent)
            snprintf(text, capacity, "%s", absent);
        else
            describe_one(flag, value, text, capacity);
    } else {
        describe_list(flag, field, text, capacity);
        if (text[0] == '\0')
            snprintf(text, capacity, "%s", absent);
    }
}

/* Words in lines that begin at one column. */
static void print_wrapped(FILE *file, const char *text, int indent, int width)
{
    int at = indent;
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (at > indent && at + 1 + length > width) {
            fprintf(file, "\n%*s", indent, "");
            at = indent;
        }
        at += fprintf(file, "%s%.*s", at > indent ? " " : "", length, text);
        text += length;
        text += strspn(text, " ");
    }
    fputs("\n", file);
}

void args_print(FILE *file, const arg_flag *const *tables, const void *defaults)
{
    for (const arg_flag *flag = first(&tables); flag; flag = next(&tables, flag)) {
        char name[64], value[160], text[512];
        describe_default(flag, (const char *)defaults + flag->at, value, sizeof value);
        snprintf(name, sizeof name, "%c%c%s--%s %s", flag->letter ? '-' : ' ',
                 flag->letter ? flag->letter : ' ', flag->letter ? ", " : "  ", flag->name,
                 flag->value_name);
        snprintf(text, sizeof text, *value ? "%s (%s)" : "%s", flag->help, value);
        fprintf(file, "  %-26s ", name);
        print_wrapped(file, text, 29, 100);
    }
}
