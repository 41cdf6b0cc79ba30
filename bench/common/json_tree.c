/* The JSON reader; see json_tree.h. Strings are unescaped in place, in a copy of the text: they
 * never become longer. Numbers are read by hand, so that no locale has a say. */
#include "json_tree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64 /* of brackets: what is nested deeper is refused, not run into */

typedef struct reader {
    char *begin, *at, *end; /* *end is 0 */
    const char *fault;      /* what is wrong at `at`; NULL: nothing yet */
} reader;

static int fault(reader *r, const char *text)
{
    if (!r->fault)
        r->fault = text;
    return -1;
}

static void skip_space(reader *r)
{
    while (r->at < r->end && strchr(" \n\r\t", *r->at) && *r->at)
        r->at++;
}

static int take(reader *r, char wanted)
{
    skip_space(r);
    if (*r->at != wanted || r->at == r->end)
        return 0;
    r->at++;
    return 1;
}

/* Four hexadecimal digits. */
static int read_unit(reader *r, uint32_t *unit)
{
    *unit = 0;
    for (int i = 0; i < 4; i++) {
        static const char digits[] = "0123456789abcdef";
        char c = *r->at;
        const char *digit = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
        if (!digit)
            return fault(r, "\\u needs four hexadecimal digits");
        *unit = *unit << 4 | (uint32_t)(digit - digits);
        r->at++;
    }
    return 0;
}

/* Behind \u: one code point, of one unit or a pair of them, as UTF-8. */
static int read_code_point(reader *r, char **to)
{
    uint32_t code, low;
    if (read_unit(r, &code) != 0)
        return -1;
    if (code >= 0xd800 && code < 0xdc00) {
        if (r->at[0] != '\\' || r->at[1] != 'u')
            return fault(r, "half a surrogate pair");
        r->at += 2;
        if (read_unit(r, &low) != 0)
            return -1;
        if (low < 0xdc00 || low > 0xdfff)
            return fault(r, "half a surrogate pair");
        code = 0x10000 + ((code & 0x3ff) << 10) + (low & 0x3ff);
    } else if (code >= 0xdc00 && code < 0xe000) {
        return fault(r, "half a surrogate pair");
    }
    if (code == 0)
        return fault(r, "a string with \\u0000 in it");
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char leads[] = {0, 0xc0, 0xe0, 0xf0};
    *(*to)++ = (char)(leads[more] | code >> 6 * more);
    while (more-- > 0)
        *(*to)++ = (char)(0x80 | (code >> 6 * more & 0x3f));
    return 0;
}

/* Behind the opening quote. */
static int read_string(reader *r, const char **string)
{
    static const char escapes[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    char *to = r->at;
    *string = to;
    while (r->at < r->end && *r->at != '"') {
        unsigned char c = (unsigned char)*r->at++;
        if (c < 0x20)
            return fault(r, "a control character in a string");
        if (c != '\\') {
            *to++ = (char)c;
            continue;
        }
        const char *escape = *r->at ? strchr(escapes, *r->at) : NULL;
        if (escape) {
            *to++ = means[escape - escapes];
            r->at++;
        } else if (*r->at == 'u') {
            r->at++;
            if (read_code_point(r, &to) != 0)
                return -1;
        } else {
            return fault(r, "an escape that JSON does not have");
        }
    }
    if (r->at == r->end)
        return fault(r, "a string that does not end");
    r->at++;
    *to = '\0';
    return 0;
}

/* Digits, at least one; each goes to the number as long as that holds it. */
static int read_digits(reader *r, double *number, int64_t *whole, int *fits)
{
    char *first = r->at;
    for (; *r->at >= '0' && *r->at <= '9'; r->at++) {
        *number = *number * 10 + (*r->at - '0');
        *fits = *fits && !__builtin_mul_overflow(*whole, 10, whole) &&
                !__builtin_add_overflow(*whole, *r->at - '0', whole);
    }
    return r->at > first ? (int)(r->at - first) : fault(r, "a number without digits");
}

static int read_number(reader *r, json_item *item)
{
    int negative = *r->at == '-', scale = 0, ignored = 0;
    int64_t exponent = 0;
    double unused = 0;
    r->at += negative;
    char *first = r->at;
    item->kind = JSON_NUMBER;
    item->is_whole = 1;
    int digits = read_digits(r, &item->number, &item->whole, &item->is_whole);
    if (digits < 0)
        return -1;
    if (digits > 1 && *first == '0')
        return fault(r, "a number that begins with 0");
    if (*r->at == '.') {
        r->at++;
        item->is_whole = 0;
        scale = -read_digits(r, &item->number, &(int64_t){0}, &ignored);
    }
    if (!r->fault && (*r->at == 'e' || *r->at == 'E')) {
        int down = r->at[1] == '-', fits = 1;
        r->at += 1 + (r->at[1] == '+' || down);
        item->is_whole = 0;
        if (read_digits(r, &unused, &exponent, &fits) > 0)
            exponent = !fits || exponent > 9999 ? 9999 : exponent;
        scale += (int)(down ? -exponent : exponent);
    }
    if (scale < 0) /* a power of ten is exact up to 22, its inverse is not */
        item->number /= pow(10, -scale);
    else
        item->number *= pow(10, scale);
    item->number = negative ? -item->number : item->number;
    item->whole = negative ? -item->whole : item->whole;
    return r->fault ? -1 : 0;
}

static json_item *read_item(reader *r, int depth);

/* Members of an object, or elements of an array. */
static int read_members(reader *r, json_item *item, char end, int depth)
{
    json_item **last = &item->first;
    if (depth >= MAX_DEPTH)
        return fault(r, "brackets nested too deep");
    if (take(r, end))
        return 0;
    do {
        const char *name = NULL;
        if (end == '}') {
            if (!take(r, '"'))
                return fault(r, "a member without a name in quotes");
            if (read_string(r, &name) != 0)
                return -1;
            if (!take(r, ':'))
                return fault(r, "a name without ':' behind it");
        }
        *last = read_item(r, depth + 1);
        if (!*last)
            return -1;
        (*last)->name = name;
        last = &(*last)->next;
    } while (take(r, ','));
    return take(r, end) ? 0 : fault(r, "no ',' and no end of the list");
}

static int read_word(reader *r, json_item *item)
{
    static const char *const words[] = {"null", "true", "false"};
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(words[i]);
        if (strncmp(r->at, words[i], length) == 0) {
            item->kind = (json_kind)i; /* in this order */
            r->at += length;
            return 0;
        }
    }
    return fault(r, r->at == r->end ? "nothing where a value should be" : "no value of JSON");
}

static void free_items(json_item *item)
{
    while (item) {
        json_item *next = item->next;
        free_items(item->first);
        free(item);
        item = next;
    }
}

static json_item *read_item(reader *r, int depth)
{
    int status;
    json_item *item = calloc(1, sizeof *item);
    if (!item) {
        fault(r, "not enough memory");
        return NULL;
    }
    skip_space(r);
    if (take(r, '{')) {
        item->kind = JSON_OBJECT;
        status = read_members(r, item, '}', depth);
    } else if (take(r, '[')) {
        item->kind = JSON_ARRAY;
        status = read_members(r, item, ']', depth);
    } else if (take(r, '"')) {
        item->kind = JSON_STRING;
        status = read_string(r, &item->text);
    } else if (*r->at == '-' || (*r->at >= '0' && *r->at <= '9')) {
        status = read_number(r, item);
    } else {
        status = read_word(r, item);
    }
    if (status == 0)
        return item;
    free_items(item);
    return NULL;
}

int json_tree_read(json_tree *tree, const char *text, size_t length, char *error, size_t capacity)
{
    *tree = (json_tree){NULL, malloc(length + 1)};
    if (!tree->copy) {
        snprintf(error, capacity, "not enough memory for %zu bytes of JSON", length);
        return -1;
    }
    memcpy(tree->copy, text, length);
    tree->copy[length] = '\0';
    reader r = {tree->copy, tree->copy, tree->copy + length, NULL};
    tree->root = read_item(&r, 0);
    skip_space(&r);
    if (tree->root && r.at < r.end)
        fault(&r, "something behind the value");
    if (!r.fault)
        return 0;
    snprintf(error, capacity, "not JSON at byte %zu: %s", (size_t)(r.at - r.begin), r.fault);
    json_tree_free(tree);
    return -1;
}

void json_tree_free(json_tree *tree)
{
    free_items(tree->root);
    free(tree->copy);
    *tree = (json_tree){0};
}

const json_item *json_find(const json_item *object, const char *name)
{
    if (!object || object->kind != JSON_OBJECT)
        return NULL;
    for (const json_item *item = object->first; item; item = item->next)
        if (strcmp(item->name, name) == 0)
            return item;
    return NULL;
}
