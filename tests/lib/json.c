/* See json.h. */
#include "json.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_value *read_value(const char **at);

static void skip_space(const char **at)
{
    *at += strspn(*at, " \n\r\t");
}

static int take(const char **at, char wanted)
{
    skip_space(at);
    if (**at != wanted)
        return 0;
    ++*at;
    return 1;
}

/* Behind the opening quote; NULL if it does not end or has a bare control character. */
static char *read_string(const char **at)
{
    static const char escapes[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    char *string = malloc(strlen(*at) + 1), *to = string;
    while (**at && **at != '"') {
        unsigned char c = (unsigned char)*(*at)++;
        if (c < 0x20)
            break;
        if (c != '\\') {
            *to++ = (char)c;
            continue;
        }
        const char *escape = **at ? strchr(escapes, **at) : NULL;
        char digits[5] = {0};
        if (escape) {
            *to++ = means[escape - escapes];
            ++*at;
        } else if (**at == 'u' && strlen(*at) > 4 &&
                   strspn(memcpy(digits, *at + 1, 4), "0123456789abcdefABCDEF") == 4) {
            *to++ = (char)strtol(digits, NULL, 16);
            *at += 5;
        } else {
            break;
        }
    }
    *to = '\0';
    if (*(*at)++ == '"')
        return string;
    free(string);
    return NULL;
}

/* -?digits(.digits)?(e[+-]?digits)?, which strtod() alone does not insist on. */
static int read_number(const char **at, double *number)
{
    const char *c = *at;
    c += *c == '-';
    size_t digits = strspn(c, "0123456789");
    if (digits == 0 || (digits > 1 && *c == '0'))
        return 0;
    c += digits;
    if (*c == '.') {
        digits = strspn(++c, "0123456789");
        if (digits == 0)
            return 0;
        c += digits;
    }
    if (*c == 'e' || *c == 'E') {
        c += 1 + (c[1] == '+' || c[1] == '-');
        digits = strspn(c, "0123456789");
        if (digits == 0)
            return 0;
        c += digits;
    }
    *number = strtod(*at, NULL);
    *at = c;
    return 1;
}

/* Members of an object, or elements of an array. */
static int read_members(const char **at, json_value *value, char end)
{
    json_value **last = &value->first;
    if (take(at, end))
        return 1;
    do {
        char *name = NULL;
        if (end == '}' && (!take(at, '"') || !(name = read_string(at)) || !take(at, ':'))) {
            free(name);
            return 0;
        }
        json_value *member = read_value(at);
        if (!member) {
            free(name);
            return 0;
        }
        member->name = name;
        *last = member;
        last = &member->next;
    } while (take(at, ','));
    return take(at, end);
}

static int read_word(const char **at, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(*at, word, length) != 0 || isalnum((unsigned char)(*at)[length]))
        return 0;
    *at += length;
    return 1;
}

static json_value *read_value(const char **at)
{
    json_value *value = calloc(1, sizeof *value);
    int good = 1;
    skip_space(at);
    if (take(at, '{')) {
        value->kind = JSON_OBJECT;
        good = read_members(at, value, '}');
    } else if (take(at, '[')) {
        value->kind = JSON_ARRAY;
        good = read_members(at, value, ']');
    } else if (take(at, '"')) {
        value->kind = JSON_STRING;
        good = (value->string = read_string(at)) != NULL;
    } else if (read_word(at, "true")) {
        value->kind = JSON_TRUE;
    } else if (read_word(at, "false")) {
        value->kind = JSON_FALSE;
    } else if (!read_word(at, "null")) {
        value->kind = JSON_NUMBER;
        good = read_number(at, &value->number);
    }
    if (good)
        return value;
    json_free(value);
    return NULL;
}

json_value *json_read(const char *text)
{
    json_value *value = read_value(&text);
    skip_space(&text);
    if (value && *text) {
        json_free(value);
        return NULL;
    }
    return value;
}

void json_free(json_value *value)
{
    while (value) {
        json_value *next = value->next;
        json_free(value->first);
        free(value->string);
        free(value->name);
        free(value);
        value = next;
    }
}

const json_value *json_member(const json_value *object, const char *name)
{
    for (const json_value *v = object ? object->first : NULL; v; v = v->next)
        if (v->name && strcmp(v->name, name) == 0)
            return v;
    return NULL;
}

/* ---- Explanations ---------------------------------------------------------------------------- */

static int same_text(const json_value *a, const json_value *b, const char *name)
{
    const json_value *x = json_member(a, name), *y = json_member(b, name);
    return x && y && x->kind == JSON_STRING && y->kind == JSON_STRING &&
           strcmp(x->string, y->string) == 0;
}

static int same_number(const json_value *a, const json_value *b, const char *name)
{
    const json_value *x = json_member(a, name), *y = json_member(b, name);
    return x && y && x->kind == JSON_NUMBER && x->number == y->number;
}

/* Do the microseconds of a list's members add up to those of its owner, and has each a name? */
static int adds_up(const json_value *owner, const char *list)
{
    const json_value *whole = json_member(owner, "microseconds"),
                     *members = json_member(owner, list);
    double sum = 0;
    if (!whole || whole->kind != JSON_NUMBER || !members || members->kind != JSON_ARRAY)
        return 0;
    for (const json_value *v = members->first; v; v = v->next) {
        const json_value *part = json_member(v, "microseconds"), *name = json_member(v, "name");
        if (!part || part->kind != JSON_NUMBER || !name || !*name->string)
            return 0;
        sum += part->number;
    }
    return members->first && fabs(sum - whole->number) <= 1e-6 * fabs(whole->number);
}

static const char *candidate_fault(const json_value *plan, const json_value *c, int *chosen)
{
    static const char *const numbers[] = {"messages_sent",     "messages_received",
                                          "bytes_sent",        "bytes_received",
                                          "bytes_sent_by_all", "attend_microseconds"};
    const json_value *mark = json_member(c, "chosen"), *fits = json_member(c, "fits");
    const json_value *memory = json_member(c, "memory_bytes");
    if (!mark || !fits || (fits->kind != JSON_TRUE && fits->kind != JSON_FALSE) || !memory ||
        memory->number <= 0)
        return "chosen, fits or memory_bytes of a candidate";
    if (!adds_up(c, "calls"))
        return "calls that do not add up to their candidate";
    for (const json_value *call = json_member(c, "calls")->first; call; call = call->next) {
        if (!adds_up(call, "steps"))
            return "steps that do not add up to their call";
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i)
            if (!json_member(call, numbers[i]) || json_member(call, numbers[i])->number < 0)
                return numbers[i];
    }
    if (mark->kind != JSON_TRUE)
        return NULL;
    ++*chosen;
    const json_value *ranks = json_member(plan, "ranks");
    if (!same_text(plan, c, "algorithm") || !same_number(plan, c, "grid_rows") ||
        !same_number(plan, c, "grid_columns") ||
        (ranks->number > 1 && !same_text(plan, c, "exchange")))
        return "the chosen candidate is not what runs";
    return NULL;
}

static const char *fault_of(const json_value *plan, int *candidates)
{
    const json_value *list = json_member(plan, "candidates"), *why = json_member(plan, "why");
    const json_value *memory = json_member(plan, "memory_bytes");
    int chosen = 0;
    *candidates = 0;
    if (!plan || plan->kind != JSON_OBJECT)
        return "not a JSON object";
    if (!why || !why->string || !*why->string || !json_member(plan, "ranks") || !memory ||
        memory->number <= 0)
        return "why, ranks or memory_bytes";
    if (!list)
        return json_member(plan, "cluster") ? "a cluster without candidates" : NULL;
    if (!json_member(plan, "cluster") || list->kind != JSON_ARRAY)
        return "candidates without a cluster";
    for (const json_value *c = list->first; c; c = c->next, ++*candidates) {
        const char *fault = candidate_fault(plan, c, &chosen);
        if (fault)
            return fault;
    }
    return chosen == 1 ? NULL : "not exactly one candidate is chosen";
}

const char *explanation_fault(const char *text, int *candidates)
{
    json_value *plan = json_read(text);
    const char *fault = fault_of(plan, candidates);
    json_free(plan);
    return fault;
}
