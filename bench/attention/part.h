/* The tensors of one rank in `treeattn-bench attention`, in its device's memory: inputs that are
 * functions of their index, and results, which are NaN until the library writes them. */
#ifndef BENCH_ATTENTION_PART_H
#define BENCH_ATTENTION_PART_H

#include "results.h"

/* The inputs first; the lse is f32 whatever the dtype. */
enum { PART_Q, PART_K, PART_V, PART_DOUT, PART_OUT, PART_DQ, PART_DK, PART_DV, PART_LSE, PARTS };

typedef struct rank_part {
    ta_device *device;
    int32_t tokens;
    int32_t *positions;
    void *tensors[PARTS];
    size_t bytes; /* of all of them */
} rank_part;

ta_status part_make(const attention_row *row, int rank, ta_device *device, rank_part *part);
void part_free(rank_part *part);

/* Make the results NaN again. */
ta_status part_poison(const attention_row *row, rank_part *part);

/* Put this rank's results among those of the whole sequence. */
ta_status part_collect(const attention_row *row, const rank_part *part, attention_data *data);

/* The most tokens that a rank holds. */
ta_status part_most_tokens(const attention_row *row, int32_t *tokens);

/* head_dim numbers of one token and head of an input. */
void part_input_row(const attention_row *row, int input, int32_t token, int32_t head,
                    double *numbers);

#endif
