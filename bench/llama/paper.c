/* See paper.h. forecast.c and llama.c ask for it. */
#include "paper.h"

#include <string.h>

/* Prompt and 10 words, seconds, tree and its ring. */
static const struct {
    const char *model, *gpu;
    int gpus;
    int32_t tokens;
    double tree, ring;
} published[] = {
    {"3.1-8b", "H100", 8, 32 << 10, 0.60, 2.57},
    {"3.1-8b", "H100", 8, 64 << 10, 1.08, 4.42},
    {"3.1-8b", "H100", 8, 128 << 10, 2.68, 6.38},
    {"3.1-8b", "H100", 8, 256 << 10, 2.89, 8.19},
    {"3.1-8b", "MI300X", 4, 32 << 10, 1.05, 3.57},
    {"3.1-8b", "MI300X", 4, 64 << 10, 2.36, 7.33},
    {"3.1-8b", "MI300X", 4, 128 << 10, 6.43, 16.40},
    {"3.1-8b", "MI300X", 4, 256 << 10, 15.30, 35.12},
    {"3.2-1b", "RTX 4090", 2, 8 << 10, 0.34, 1.38},
    {"3.2-1b", "RTX 4090", 2, 16 << 10, 0.58, 2.77},
    {"3.2-1b", "RTX 4090", 2, 20 << 10, 0.74, 3.47},
    {"3.2-1b", "RTX 4090", 2, 32 << 10, 1.01, 5.45},
};
enum { WORDS = 10 };

/* GPUs of other speed whose names begin alike. */
static int is_gpu(const char *name, const char *gpu)
{
    static const char *const others[] = {"PCIe", "NVL", "Laptop", "4090 D"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(name, others[i]))
            return 0;
    return strstr(name, gpu) != NULL;
}

/* What takes time: sizes, whatever the model is called. */
static int has_shape(const llama_config *c, const char *model)
{
    llama_config m;
    return llama_config_builtin(model, &m) == 0 && c->hidden == m.hidden && c->inner == m.inner &&
           c->layers == m.layers && c->heads == m.heads && c->kv_heads == m.kv_heads &&
           c->head_dim == m.head_dim && c->vocabulary == m.vocabulary;
}

double paper_seconds(const llama_flags *flags, const llama_config *config, const char *gpu,
                     int gpus, int32_t tokens, int index)
{
    ta_algorithm algorithm = llama_flags_algorithm(flags, index);
    if (!gpu || flags->new_words != WORDS || llama_flags_prefill(flags) == PREFILL_NONE)
        return 0;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        if (published[i].tokens == tokens && published[i].gpus == gpus &&
            is_gpu(gpu, published[i].gpu) && has_shape(config, published[i].model))
            return algorithm == TA_ALGORITHM_TREE      ? published[i].tree
                   : algorithm == TA_ALGORITHM_RING_KV ? published[i].ring
                                                       : 0;
    return 0;
}

const char *paper_gpu(const rank_place *places, int ranks)
{
    for (int rank = 0; places && rank < ranks; rank++) {
        const rank_place *p = &places[rank];
        if (strcmp(p->product, places->product) != 0 || strcmp(p->host, places->host) != 0)
            return NULL;
        for (int other = 0; other < rank; other++)
            if (strcmp(places[other].device, p->device) == 0)
                return NULL;
    }
    return places && places->product[0] ? places->product : NULL;
}
