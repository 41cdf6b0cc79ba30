/* Records one after the other, in the order of partial.h, and where the row of each is in a tensor
 * of outputs: by steps, since a division for each took as long as its arithmetic. records.c and
 * merge.c go over records with it. */
#ifndef TA_HOST_RECORD_WALK_H
#define TA_HOST_RECORD_WALK_H

#include "device/device.h"

typedef struct ta_record_walk {
    const ta_problem *problem;
    const ta_tensor *tensor;
    int64_t row; /* of all sequences */
    int32_t head, token;
    int64_t at; /* elements of the tensor up to this row and head */
} ta_record_walk;

/* Begin at record `number`, counted from the first one of the tensor's head 0. */
static inline ta_record_walk ta_record_walk_start(const ta_problem *problem,
                                                  const ta_tensor *tensor, int64_t number)
{
    ta_record_walk w = {.problem = problem, .tensor = tensor};
    int64_t rows = ta_problem_rows(problem);
    w.head = (int32_t)(number / rows);
    w.row = number % rows;
    w.token = problem->starts ? 0 : (int32_t)(w.row % problem->query_tokens);
    w.at = ta_problem_row_at(problem, tensor, w.row) + w.head * tensor->head_stride;
    return w;
}

static inline void ta_record_walk_next(ta_record_walk *w)
{
    const ta_problem *p = w->problem;
    w->at += w->tensor->token_stride;
    if (!p->starts && ++w->token == p->query_tokens) {
        w->token = 0;
        w->at += w->tensor->batch_stride - p->query_tokens * w->tensor->token_stride;
    }
    if (++w->row == ta_problem_rows(p)) {
        w->row = 0;
        w->at = ++w->head * w->tensor->head_stride;
    }
}

#endif
