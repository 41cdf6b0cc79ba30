/* See tensor_list.h. */
#include "tensor_list.h"

#include <string.h>

#define LAYER(field) offsetof(llama_layer, field)
const tensor_kind layer_tensors[] = {
    {"self_attn.q_proj.weight", LAYER(q), AXIS_QUERIES, AXIS_HIDDEN},
    {"self_attn.k_proj.weight", LAYER(k), AXIS_KEYS, AXIS_HIDDEN},
    {"self_attn.v_proj.weight", LAYER(v), AXIS_KEYS, AXIS_HIDDEN},
    {"self_attn.o_proj.weight", LAYER(o), AXIS_HIDDEN, AXIS_QUERIES},
    {"mlp.gate_proj.weight", LAYER(gate), AXIS_INNER, AXIS_HIDDEN},
    {"mlp.up_proj.weight", LAYER(up), AXIS_INNER, AXIS_HIDDEN},
    {"mlp.down_proj.weight", LAYER(down), AXIS_HIDDEN, AXIS_INNER},
    {"input_layernorm.weight", LAYER(attention_norm), AXIS_HIDDEN, AXIS_NONE},
    {"post_attention_layernorm.weight", LAYER(mlp_norm), AXIS_HIDDEN, AXIS_NONE},
    {"self_attn.q_norm.weight", LAYER(q_norm), AXIS_DIM, AXIS_NONE},
    {"self_attn.k_norm.weight", LAYER(k_norm), AXIS_DIM, AXIS_NONE},
    {"self_attn.q_proj.bias", LAYER(q_bias), AXIS_QUERIES, AXIS_NONE},
    {"self_attn.k_proj.bias", LAYER(k_bias), AXIS_KEYS, AXIS_NONE},
    {"self_attn.v_proj.bias", LAYER(v_bias), AXIS_KEYS, AXIS_NONE},
    {0},
};

#define MODEL(field) offsetof(llama_part, field)
const tensor_kind model_tensors[] = {
    {"model.embed_tokens.weight", MODEL(embedding), AXIS_WORDS, AXIS_HIDDEN},
    {"lm_head.weight", MODEL(head), AXIS_WORDS, AXIS_HIDDEN},
    {"model.norm.weight", MODEL(norm), AXIS_HIDDEN, AXIS_NONE},
    {0},
};

int tensor_exists(const tensor_kind *kind, const llama_config *config)
{
    if (strstr(kind->name, ".bias"))
        return config->qkv_bias;
    if (kind->rows == AXIS_DIM)
        return config->qk_norm;
    return strcmp(kind->name, "lm_head.weight") != 0 || !config->tied;
}

void tensor_range(tensor_axis axis, const llama_config *config, int rank, int ranks, int64_t *first,
                  int64_t *count)
{
    const struct {
        int32_t things, each;
        int divided;
    } axes[] = {
        [AXIS_NONE] = {1, 1, 0},
        [AXIS_HIDDEN] = {config->hidden, 1, 0},
        [AXIS_DIM] = {config->head_dim, 1, 0},
        [AXIS_QUERIES] = {config->heads, config->head_dim, 1},
        [AXIS_KEYS] = {config->kv_heads, config->head_dim, 1},
        [AXIS_INNER] = {config->inner, 1, 1},
        [AXIS_WORDS] = {config->vocabulary, 1, 1},
    };
    int from = 0, things = axes[axis].things;
    if (axes[axis].divided)
        ta_head_range(axes[axis].things, ranks, rank, &from, &things);
    *first = (int64_t)from * axes[axis].each;
    *count = (int64_t)things * axes[axis].each;
}
