/* See sample.h. */
#include "sample.h"

#include <math.h>

int32_t sample_greedy(const float *logits, int32_t words)
{
    int32_t best = -1;
    for (int32_t i = 0; i < words; i++)
        if (!isnan(logits[i]) && (best < 0 || logits[i] > logits[best]))
            best = i;
    return best;
}

/* Uniform in [0, 1); the finaliser is that of SplitMix64. */
static double uniform(uint64_t seed, uint64_t step)
{
    uint64_t x = (seed * 0x9e3779b97f4a7c15u ^ step) + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

static double weight_of(float logit, float most, double temperature)
{
    if (isnan(logit))
        return 0;
    return logit == most ? 1 : exp(((double)logit - most) / temperature);
}

int32_t sample_word(const float *logits, int32_t words, double temperature, uint64_t seed,
                    uint64_t step)
{
    int32_t best = sample_greedy(logits, words), last = best;
    if (best < 0 || temperature <= 0)
        return best;
    double sum = 0, until;
    for (int32_t i = 0; i < words; i++)
        sum += weight_of(logits[i], logits[best], temperature);
    until = sum * uniform(seed, step);
    sum = 0;
    for (int32_t i = 0; i < words; i++) {
        double weight = weight_of(logits[i], logits[best], temperature);
        sum += weight;
        if (weight > 0 && sum > until)
            return i;
        last = weight > 0 ? i : last;
    }
    return last;
}
