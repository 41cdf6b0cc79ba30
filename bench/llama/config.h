/* The shape of a model: one that is built in, or a config.json as published beside the weights of
 * Llama 2 and 3, Qwen 2 and Qwen 3. model_weights.h makes or loads the weights for it. */
#ifndef BENCH_LLAMA_CONFIG_H
#define BENCH_LLAMA_CONFIG_H

#include <stddef.h>
#include <stdint.h>

/* How positions become angles. With scaling, low frequencies are divided by `factor`, as Llama 3.1
 * does it to see further than it was trained for first. */
typedef struct llama_rope {
    double theta;
    int scaled;
    double factor, low_factor, high_factor, original_tokens;
} llama_rope;

typedef struct llama_config {
    char name[64];
    int32_t hidden, inner; /* width of the residual stream, and of the MLP */
    int32_t layers;
    int32_t heads, kv_heads, head_dim;
    int32_t vocabulary;
    int tied;     /* the head is the embedding */
    int qkv_bias; /* Qwen 2 */
    int qk_norm;  /* Qwen 3: an RMSNorm on each head of Q and K */
    float norm_epsilon;
    llama_rope rope;
} llama_config;

/* Names of the built-in shapes, NULL behind the last. */
extern const char *const llama_config_names[];

/* A built-in shape. Returns -1 if there is none of that name. */
int llama_config_builtin(const char *name, llama_config *config);

/* Read a config.json. Returns 0, or -1 with a sentence in `error` that names the file and what is
 * wrong in it. */
int llama_config_read(const char *path, llama_config *config, char *error, size_t capacity);

/* Elements of all weights that a decode step reads: all but the embedding, if that is not the head
 * too; and of all that there are. */
double llama_config_step_elements(const llama_config *config);
double llama_config_elements(const llama_config *config);

/* Elements that a rank holds when layers and head are divided over so many: the embedding is whole
 * on every rank. */
double llama_config_rank_elements(const llama_config *config, double ranks);

/* Bytes of K and V of one token in all layers, at so many bytes for an element. */
double llama_config_kv_bytes(const llama_config *config, size_t element_bytes);

/* The whole file in memory with a 0 behind it; free() it. NULL with a sentence in `error`. */
char *llama_read_text(const char *path, size_t *length, char *error, size_t capacity);

#endif
