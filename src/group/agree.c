/* See agree.h. All is well in almost all agreements, so the first round is one all-reduce of a few
 * numbers: whether a rank failed, and a hash of all values, of which the largest and the smallest
 * are the same if all are. Every rank hears the same, so if something is wrong all go on together:
 * rank 0 tells its values, every rank compares them with its own, and all hear the verdict of
 * all. */
#include "agree.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/status.h"

/* What rank 0 tells: a value for each field, the bits of a real, the number of elements or -1 for
 * no array. The elements of all arrays follow in a message of their own. */
typedef struct proposal {
    char what[32];
    int64_t valid;
    int64_t values[TA_AGREE_FIELDS];
    uint64_t elements_bytes;
} proposal;

/* What each rank answers. */
typedef struct verdict {
    int32_t status;
    int32_t field;        /* the first that differs from rank 0's; -1: none */
    int64_t index;        /* of an element, if that differs; -1: not one */
    int64_t value, first; /* here, and on rank 0 */
    char error[256];      /* of a rank that failed */
} verdict;

/* ---- Numbers of agreements ------------------------------------------------------------------- */

static atomic_llong last_id;

static int64_t propose_id(void)
{
    return atomic_fetch_add(&last_id, 1) + 1;
}

/* Every rank proposes a number of its own, the largest is taken, and no rank proposes it again. */
static void keep_id(int64_t id)
{
    long long last = atomic_load(&last_id);
    while (last < id && !atomic_compare_exchange_weak(&last_id, &last, id))
        ;
}

/* ---- The first round ------------------------------------------------------------------------- */

static int is_array(const ta_field *field)
{
    return field->kind == TA_FIELD_INTEGERS || field->kind == TA_FIELD_REALS;
}

static int64_t value_of(const ta_field *field)
{
    if (field->kind == TA_FIELD_REAL)
        return ta_float_bits(field->real);
    return is_array(field) && !field->elements ? -1 : field->integer;
}

static size_t elements_bytes(int64_t value)
{
    return value > 0 ? (size_t)value * sizeof(uint32_t) : 0;
}

/* Of the name, of each value, and of the elements of each array. */
static int64_t hash_of(const ta_agreement *a)
{
    uint64_t parts[1 + 2 * TA_AGREE_FIELDS] = {0};
    parts[0] = ta_hash_bytes(a->what, (uint32_t)strlen(a->what));
    for (int i = 0; i < a->field_count; ++i) {
        const ta_field *field = &a->fields[i];
        int64_t value = value_of(field);
        parts[1 + 2 * i] = (uint64_t)value;
        if (is_array(field) && value > 0)
            parts[2 + 2 * i] = ta_hash_words(field->elements, (uint32_t)value);
    }
    /* Without its sign both the hash and its complement are above INT64_MIN. */
    return (int64_t)(ta_hash_bytes(parts, sizeof parts) >> 1);
}

/* Is all well? Then `any` and `id` are set. */
static ta_status compare_hashes(ta_group *group, ta_agreement *a, ta_status status, int *well)
{
    int64_t hash = status == TA_OK ? hash_of(a) : INT64_MIN;
    int64_t complement = status == TA_OK ? ~hash : INT64_MIN;
    int64_t numbers[TA_AGREE_NUMBERS] = {status != TA_OK, hash, complement, propose_id(), a->any};
    if (group->device)
        TA_TRY(ta_group_max_host(group, numbers, TA_AGREE_NUMBERS, a->memory, a->stream));
    else
        TA_TRY(ta_group_all_reduce(group, numbers, numbers, TA_AGREE_NUMBERS, TA_ELEMENT_I64,
                                   TA_REDUCE_MAX, NULL));
    *well = !numbers[0] && numbers[1] == ~numbers[2];
    keep_id(numbers[3]);
    a->id = numbers[3];
    a->any = numbers[4];
    return TA_OK;
}

/* ---- What is wrong --------------------------------------------------------------------------- */

static void propose(const ta_agreement *a, ta_status status, proposal *p)
{
    memset(p, 0, sizeof *p);
    snprintf(p->what, sizeof p->what, "%s", a->what);
    p->valid = status == TA_OK;
    for (int i = 0; p->valid && i < a->field_count; ++i) {
        p->values[i] = value_of(&a->fields[i]);
        if (is_array(&a->fields[i]))
            p->elements_bytes += elements_bytes(p->values[i]);
    }
}

/* The elements of all arrays, one behind the other. */
static void copy_elements(const ta_agreement *a, char *to)
{
    for (int i = 0; i < a->field_count; ++i)
        if (is_array(&a->fields[i]) && a->fields[i].elements) {
            memcpy(to, a->fields[i].elements, elements_bytes(a->fields[i].integer));
            to += elements_bytes(a->fields[i].integer);
        }
}

/* Rank 0's proposal, and the elements of its arrays, which the caller frees. */
static ta_status hear_proposal(ta_group *group, const ta_agreement *a, ta_status status,
                               proposal *first, char **elements)
{
    propose(a, status, first);
    TA_TRY(ta_group_broadcast_host(group, first, sizeof *first, 0));
    if (!first->elements_bytes)
        return TA_OK;
    *elements = malloc(first->elements_bytes);
    if (!*elements)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for %llu bytes of rank 0's values",
                       (unsigned long long)first->elements_bytes);
    if (group->rank == 0)
        copy_elements(a, *elements);
    return ta_group_broadcast_host(group, *elements, first->elements_bytes, 0);
}

/* The first element of two arrays of equal lengths that differs. */
static void compare_elements(const ta_field *field, const char *elements, verdict *answer)
{
    for (int64_t i = 0; i < field->integer; ++i) {
        uint32_t own, first;
        memcpy(&own, (const char *)field->elements + 4 * i, sizeof own);
        memcpy(&first, elements + 4 * i, sizeof first);
        if (own == first)
            continue;
        answer->index = i;
        answer->value = field->kind == TA_FIELD_REALS ? (int64_t)own : (int32_t)own;
        answer->first = field->kind == TA_FIELD_REALS ? (int64_t)first : (int32_t)first;
        return;
    }
}

/* Rank 0's values against this rank's. */
static void compare(const ta_agreement *a, const proposal *first, const char *elements,
                    verdict *answer)
{
    for (int i = 0; i < a->field_count; ++i) {
        const ta_field *field = &a->fields[i];
        answer->value = value_of(field);
        answer->first = first->values[i];
        if (answer->value == answer->first && is_array(field) && field->elements)
            compare_elements(field, elements, answer);
        if (answer->value != answer->first) {
            answer->status = TA_ERR_MISMATCH;
            answer->field = i;
            return;
        }
        if (is_array(field) && elements) /* NULL: no array of rank 0's has any */
            elements += elements_bytes(first->values[i]);
    }
}

/* ---- What is said ---------------------------------------------------------------------------- */

static void write_value(const ta_field *field, int64_t index, int64_t value, char text[32])
{
    if (is_array(field) && index < 0)
        snprintf(text, 32, value < 0 ? "NULL" : "of %lld elements", (long long)value);
    else if (field->kind == TA_FIELD_REAL || field->kind == TA_FIELD_REALS)
        ta_format(text, 32, "%.9g", (double)ta_float_from_bits((uint32_t)value));
    else
        snprintf(text, 32, "%lld", (long long)value);
}

static ta_status report_difference(const ta_agreement *a, const verdict *v, int rank)
{
    const ta_field *field = &a->fields[v->field];
    char index[32] = "", here[32], there[32];
    if (v->index >= 0)
        snprintf(index, sizeof index, "[%lld]", (long long)v->index);
    write_value(field, v->index, v->value, here);
    write_value(field, v->index, v->first, there);
    return ta_fail(TA_ERR_MISMATCH, "%s differ: %s%s is %s on rank %d and %s on rank 0", a->what,
                   field->name, index, here, rank, there);
}

static ta_status report(const ta_agreement *a, const verdict *answers, int ranks)
{
    for (int rank = 0; rank < ranks; ++rank) { /* a failure may be why others differ */
        const verdict *v = &answers[rank];
        if (v->status != TA_OK && v->field < 0)
            return ta_found_by_other(ta_fail(a->others == TA_OK ? (ta_status)v->status : a->others,
                                             "rank %d %s: %s", rank, a->failed, v->error));
    }
    for (int rank = 0; rank < ranks; ++rank)
        if (answers[rank].status != TA_OK)
            return report_difference(a, &answers[rank], rank);
    return ta_fail(TA_ERR_MISMATCH, "%s differ", a->what);
}

/* All hear all answers. */
static ta_status hear_answers(ta_group *group, verdict *answers)
{
    size_t *offsets = calloc((size_t)group->size + 1, sizeof *offsets);
    if (!offsets)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory to agree with %d ranks", group->size);
    for (int rank = 0; rank <= group->size; ++rank)
        offsets[rank] = (size_t)rank * sizeof *answers;
    ta_status status = ta_group_all_gather_host(group, answers, offsets);
    free(offsets);
    return status;
}

static ta_status find_difference(ta_group *group, const ta_agreement *a, ta_status status,
                                 const char *error)
{
    proposal first;
    char *elements = NULL;
    ta_status own = status;
    verdict *answers = calloc((size_t)group->size, sizeof *answers);
    if (!answers) {
        status = ta_fail(TA_ERR_NO_MEMORY, "no memory to agree with %d ranks", group->size);
        goto abort_group;
    }
    verdict *answer = &answers[group->rank];
    *answer = (verdict){.status = own, .field = -1, .index = -1};
    snprintf(answer->error, sizeof answer->error, "%s", error);
    TA_TRY_GOTO(hear_proposal(group, a, own, &first, &elements), abort_group);
    if (strcmp(first.what, a->what) != 0) {
        status = ta_fail(TA_ERR_MISMATCH, "rank %d agrees on %s, rank 0 on %s", group->rank,
                         a->what, first.what);
        goto abort_group;
    }
    if (own == TA_OK && first.valid)
        compare(a, &first, elements, answer);
    TA_TRY_GOTO(hear_answers(group, answers), abort_group);
    status = own == TA_OK ? report(a, answers, group->size) : own;
    goto free_answers;

abort_group: /* somebody may wait for this rank */
    ta_group_abort(group, ta_last_error());

free_answers:
    free(elements);
    free(answers);
    return own == TA_OK ? status : ta_fail_quietly(own, "%s", error);
}

ta_status ta_agree(ta_group *group, ta_agreement *agreement, ta_status status)
{
    char error[256] = "";
    int well = 0;
    if (status != TA_OK)
        snprintf(error, sizeof error, "%s", ta_last_error());
    if (ta_group_size(group) == 1) {
        agreement->id = propose_id();
        return status;
    }
    ta_status heard = compare_hashes(group, agreement, status, &well);
    if (heard == TA_OK && well)
        return TA_OK;
    if (heard == TA_OK)
        return find_difference(group, agreement, status, error);
    /* The first cause counts: a rank that failed says so, whatever became of the group. */
    return status == TA_OK ? heard : ta_fail_quietly(status, "%s", error);
}
