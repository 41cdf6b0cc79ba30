/* Angles of positions; see ops.h. */
#include <math.h>

#include "ops.h"

/* Llama 3.1: frequencies that turn less than low_factor times within the tokens of the first
 * training are divided by `factor`, those that turn more than high_factor times stay, between them
 * it is a mixture. */
static double frequency(const llama_rope *rope, int32_t i, int32_t head_dim)
{
    double plain = pow(rope->theta, -2.0 * i / head_dim);
    if (!rope->scaled)
        return plain;
    double turns = rope->original_tokens * plain / (2 * M_PI);
    double share = (turns - rope->low_factor) / (rope->high_factor - rope->low_factor);
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return (1 - share) * plain / rope->factor + share * plain;
}

void llama_rope_angles(const llama_rope *rope, int32_t head_dim, const int32_t *positions,
                       int64_t tokens, float *cosines, float *sines)
{
    int32_t half = head_dim / 2;
    for (int32_t i = 0; i < half; i++) {
        double each = frequency(rope, i, head_dim);
        for (int64_t token = 0; token < tokens; token++) {
            double angle = positions[token] * each;
            cosines[token * half + i] = (float)cos(angle);
            sines[token * half + i] = (float)sin(angle);
        }
    }
}
