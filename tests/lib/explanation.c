/* See explanation.h. */
#include "explanation.h"

#include <math.h>
#include <string.h>

#include "../../bench/common/json_tree.h"

static int same_text(const json_item *a, const json_item *b, const char *name)
{
    const json_item *x = json_find(a, name), *y = json_find(b, name);
    return x && y && x->kind == JSON_STRING && y->kind == JSON_STRING &&
           strcmp(x->text, y->text) == 0;
}

static int same_number(const json_item *a, const json_item *b, const char *name)
{
    const json_item *x = json_find(a, name), *y = json_find(b, name);
    return x && y && x->kind == JSON_NUMBER && x->number == y->number;
}

/* Do the microseconds of a list's members add up to those of its owner, and has each a name? */
static int adds_up(const json_item *owner, const char *list)
{
    const json_item *whole = json_find(owner, "microseconds"), *members = json_find(owner, list);
    double sum = 0;
    if (!whole || whole->kind != JSON_NUMBER || !members || members->kind != JSON_ARRAY)
        return 0;
    for (const json_item *v = members->first; v; v = v->next) {
        const json_item *part = json_find(v, "microseconds"), *name = json_find(v, "name");
        if (!part || part->kind != JSON_NUMBER || !name || !name->text || !*name->text)
            return 0;
        sum += part->number;
    }
    return members->first && fabs(sum - whole->number) <= 1e-6 * fabs(whole->number);
}

static const char *candidate_fault(const json_item *plan, const json_item *c, int *chosen)
{
    static const char *const numbers[] = {"messages_sent",     "messages_received",
                                          "bytes_sent",        "bytes_received",
                                          "bytes_sent_by_all", "attend_microseconds"};
    const json_item *mark = json_find(c, "chosen"), *fits = json_find(c, "fits");
    const json_item *memory = json_find(c, "memory_bytes");
    if (!mark || !fits || (fits->kind != JSON_TRUE && fits->kind != JSON_FALSE) || !memory ||
        memory->number <= 0)
        return "chosen, fits or memory_bytes of a candidate";
    if (!adds_up(c, "calls"))
        return "calls that do not add up to their candidate";
    for (const json_item *call = json_find(c, "calls")->first; call; call = call->next) {
        if (!adds_up(call, "steps"))
            return "steps that do not add up to their call";
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i)
            if (!json_find(call, numbers[i]) || json_find(call, numbers[i])->number < 0)
                return numbers[i];
    }
    if (mark->kind != JSON_TRUE)
        return NULL;
    ++*chosen;
    const json_item *ranks = json_find(plan, "ranks");
    if (!same_text(plan, c, "algorithm") || !same_number(plan, c, "grid_rows") ||
        !same_number(plan, c, "grid_columns") ||
        (ranks->number > 1 && !same_text(plan, c, "exchange")))
        return "the chosen candidate is not what runs";
    return NULL;
}

static const char *fault_of(const json_item *plan, int *candidates)
{
    const json_item *list = json_find(plan, "candidates"), *why = json_find(plan, "why");
    const json_item *memory = json_find(plan, "memory_bytes");
    int chosen = 0;
    *candidates = 0;
    if (plan->kind != JSON_OBJECT)
        return "not a JSON object";
    if (!why || !why->text || !*why->text || !json_find(plan, "ranks") || !memory ||
        memory->number <= 0)
        return "why, ranks or memory_bytes";
    if (!list)
        return json_find(plan, "cluster") ? "a cluster without candidates" : NULL;
    if (!json_find(plan, "cluster") || list->kind != JSON_ARRAY)
        return "candidates without a cluster";
    for (const json_item *c = list->first; c; c = c->next, ++*candidates) {
        const char *fault = candidate_fault(plan, c, &chosen);
        if (fault)
            return fault;
    }
    return chosen == 1 ? NULL : "not exactly one candidate is chosen";
}

const char *explanation_fault(const char *text, int *candidates)
{
    json_tree tree;
    char error[200];
    *candidates = 0;
    if (json_tree_read(&tree, text, strlen(text), error, sizeof error) != 0)
        return "not JSON";
    const char *fault = fault_of(tree.root, candidates);
    json_tree_free(&tree);
    return fault;
}
