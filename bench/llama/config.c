/* See config.h. What a config.json says that would change results and is not done here is refused,
 * so that no option is silently ignored. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_tree.h"

#define LLAMA31_ROPE(factor)                                                                       \
    {                                                                                              \
        500000, 1, factor, 1, 4, 8192                                                              \
    }

static const llama_config builtin[] = {
    {"3.1-8b", 4096, 14336, 32, 32, 8, 128, 128256, 0, 0, 0, 1e-5f, LLAMA31_ROPE(8)},
    {"3.2-1b", 2048, 8192, 16, 32, 8, 64, 128256, 1, 0, 0, 1e-5f, LLAMA31_ROPE(32)},
    {"3-70b", 8192, 28672, 80, 64, 8, 128, 128256, 0, 0, 0, 1e-5f, {500000, 0, 0, 0, 0, 0}},
    /* Small enough to compute in double. Its scaling begins early, so that tests see it, and
     * nothing in it is a multiple of 3 or of much else. */
    {"tiny", 56, 152, 2, 4, 2, 16, 250, 0, 0, 0, 1e-5f, {10000, 1, 4, 1, 4, 32}},
};
enum { BUILTIN = sizeof builtin / sizeof *builtin };

const char *const llama_config_names[] = {"3.1-8b", "3.2-1b", "3-70b", "tiny", NULL};

int llama_config_builtin(const char *name, llama_config *config)
{
    for (int i = 0; i < BUILTIN; i++) {
        if (strcmp(builtin[i].name, name) == 0) {
            *config = builtin[i];
            return 0;
        }
    }
    return -1;
}

char *llama_read_text(const char *path, size_t *length, char *error, size_t capacity)
{
    enum { STEP = 1 << 16 };
    char *text = NULL;
    size_t used = 0, got = 0;
    FILE *file = fopen(path, "rb");
    if (!file) {
        snprintf(error, capacity, "'%s' cannot be read: %s", path, strerror(errno));
        return NULL;
    }
    do {
        char *grown = realloc(text, used + STEP + 1);
        if (!grown) {
            used = 0;
            break;
        }
        text = grown;
        got = fread(text + used, 1, STEP, file);
        used += got;
    } while (got == STEP);
    int failed = ferror(file) || !text;
    fclose(file);
    if (failed) {
        snprintf(error, capacity, "'%s' could not be read to its end", path);
        free(text);
        return NULL;
    }
    text[used] = '\0';
    *length = used;
    return text;
}

/* ---- config.json --------------------------------------------------------------------------- */

typedef struct config_file {
    const char *path;
    const json_item *root;
    char *error;
    size_t capacity;
} config_file;

/* A member that is there and not null, which the files use for "not there". */
static const json_item *member(const json_item *object, const char *name)
{
    const json_item *item = json_find(object, name);
    return item && item->kind != JSON_NULL ? item : NULL;
}

/* A whole number; `absent` if it is not there, unless that is 0: then it must be. */
static int read_size(const config_file *f, const char *name, int64_t most, int64_t absent,
                     int32_t *size)
{
    const json_item *item = member(f->root, name);
    if (!item && absent) {
        *size = (int32_t)absent;
        return 0;
    }
    if (!item || !item->is_whole || item->whole < 1 || item->whole > most) {
        snprintf(f->error, f->capacity, "%s: %s %s, but must be a whole number from 1 to %lld",
                 f->path, name, item ? "is something else" : "is missing", (long long)most);
        return -1;
    }
    *size = (int32_t)item->whole;
    return 0;
}

static int read_double(const config_file *f, const json_item *object, const char *name,
                       double absent, double *number)
{
    const json_item *item = member(object, name);
    if (!item && absent > 0) {
        *number = absent;
        return 0;
    }
    if (!item || item->kind != JSON_NUMBER || !(item->number > 0) || item->number > 1e12) {
        snprintf(f->error, f->capacity, "%s: %s %s, but must be a number above 0", f->path, name,
                 item ? "is something else" : "is missing");
        return -1;
    }
    *number = item->number;
    return 0;
}

static int is_true(const json_item *object, const char *name)
{
    const json_item *item = json_find(object, name);
    return item && item->kind == JSON_TRUE;
}

static const char *text_of(const json_item *object, const char *name, const char *absent)
{
    const json_item *item = member(object, name);
    return item && item->kind == JSON_STRING ? item->text : absent;
}

/* A rotation of some of the dimensions alone would need other arithmetic. */
static int whole_rotation(const config_file *f, const json_item *object)
{
    const json_item *factor = member(object, "partial_rotary_factor");
    if (!factor || (factor->kind == JSON_NUMBER && factor->number == 1))
        return 0;
    snprintf(f->error, f->capacity,
             "%s: partial_rotary_factor must be 1 or absent: all dimensions are rotated here",
             f->path);
    return -1;
}

/* Older files have rope_theta beside rope_scaling, newer ones both in rope_parameters; what these
 * lack may still be beside them. */
static int read_rope(const config_file *f, llama_rope *rope)
{
    const json_item *newer = member(f->root, "rope_parameters");
    const json_item *scaling = newer ? newer : member(f->root, "rope_scaling");
    const char *type = text_of(scaling, "rope_type", text_of(scaling, "type", "default"));
    const json_item *theta_in = member(newer, "rope_theta") ? newer : f->root;
    if (whole_rotation(f, f->root) != 0 || whole_rotation(f, scaling) != 0 ||
        read_double(f, theta_in, "rope_theta", 10000, &rope->theta) != 0)
        return -1;
    if (strcmp(type, "default") == 0)
        return 0;
    if (strcmp(type, "llama3") != 0) {
        snprintf(f->error, f->capacity,
                 "%s: the rope scaling is '%s', but must be llama3, default or none", f->path,
                 type);
        return -1;
    }
    rope->scaled = 1;
    if (read_double(f, scaling, "factor", 0, &rope->factor) != 0 ||
        read_double(f, scaling, "low_freq_factor", 0, &rope->low_factor) != 0 ||
        read_double(f, scaling, "high_freq_factor", 0, &rope->high_factor) != 0 ||
        read_double(f, scaling, "original_max_position_embeddings", 0, &rope->original_tokens) != 0)
        return -1;
    if (rope->high_factor > rope->low_factor)
        return 0;
    snprintf(f->error, f->capacity, "%s: high_freq_factor must be above low_freq_factor", f->path);
    return -1;
}

/* What would need other arithmetic than there is. */
static int refuse_others(const config_file *f, const char *type)
{
    const char *wrong = NULL;
    const json_item *window = member(f->root, "sliding_window");
    if (strcmp(type, "llama") != 0 && strcmp(type, "qwen2") != 0 && strcmp(type, "qwen3") != 0 &&
        strcmp(type, "mistral") != 0)
        wrong = "model_type must be llama, qwen2, qwen3 or mistral";
    else if (strcmp(text_of(f->root, "hidden_act", "silu"), "silu") != 0)
        wrong = "hidden_act must be silu";
    else if (is_true(f->root, "mlp_bias"))
        wrong = "mlp_bias must be false";
    else if (is_true(f->root, "attention_bias"))
        wrong = "attention_bias must be false: the bias of the output projection is not done here";
    else if (window && (is_true(f->root, "use_sliding_window") || strcmp(type, "mistral") == 0))
        wrong = "sliding_window must be null: windows are not done here";
    else if (member(f->root, "quantization_config"))
        wrong = "quantization_config must not be there: weights must be bf16, f16 or f32";
    if (!wrong)
        return 0;
    snprintf(f->error, f->capacity, "%s: %s", f->path, wrong);
    return -1;
}

static int read_shape(const config_file *f, llama_config *c)
{
    double epsilon;
    if (read_size(f, "hidden_size", 1 << 20, 0, &c->hidden) != 0 ||
        read_size(f, "intermediate_size", 1 << 22, 0, &c->inner) != 0 ||
        read_size(f, "num_hidden_layers", 4096, 0, &c->layers) != 0 ||
        read_size(f, "num_attention_heads", 4096, 0, &c->heads) != 0 ||
        read_size(f, "num_key_value_heads", 4096, c->heads, &c->kv_heads) != 0 ||
        read_size(f, "vocab_size", 1 << 24, 0, &c->vocabulary) != 0 ||
        read_double(f, f->root, "rms_norm_eps", 1e-6, &epsilon) != 0)
        return -1;
    int64_t whole = c->hidden % c->heads == 0 ? c->hidden / c->heads : 0;
    if (read_size(f, "head_dim", 576, whole, &c->head_dim) != 0)
        return -1;
    c->norm_epsilon = (float)epsilon;
    if (c->heads % c->kv_heads != 0) {
        snprintf(f->error, f->capacity,
                 "%s: num_attention_heads is %d, but must be a multiple of num_key_value_heads, %d",
                 f->path, (int)c->heads, (int)c->kv_heads);
        return -1;
    }
    if (c->head_dim % 8 != 0) {
        snprintf(f->error, f->capacity, "%s: head_dim is %d, but must be a multiple of 8", f->path,
                 (int)c->head_dim);
        return -1;
    }
    return 0;
}

static int read_config(const config_file *f, llama_config *c)
{
    if (f->root->kind != JSON_OBJECT) {
        snprintf(f->error, f->capacity, "%s: must be a JSON object", f->path);
        return -1;
    }
    const char *type = text_of(f->root, "model_type", "llama");
    if (refuse_others(f, type) != 0 || read_shape(f, c) != 0 || read_rope(f, &c->rope) != 0)
        return -1;
    c->tied = is_true(f->root, "tie_word_embeddings");
    c->qkv_bias = strcmp(type, "qwen2") == 0;
    c->qk_norm = strcmp(type, "qwen3") == 0;
    snprintf(c->name, sizeof c->name, "%s", type);
    return 0;
}

int llama_config_read(const char *path, llama_config *config, char *error, size_t capacity)
{
    char why[256];
    json_tree tree;
    size_t length;
    char *text = llama_read_text(path, &length, error, capacity);
    if (!text)
        return -1;
    int status = json_tree_read(&tree, text, length, why, sizeof why);
    free(text);
    if (status != 0) {
        snprintf(error, capacity, "%s: %s", path, why);
        return -1;
    }
    config_file file = {path, tree.root, error, capacity};
    llama_config read = {0};
    status = read_config(&file, &read);
    json_tree_free(&tree);
    if (status == 0)
        *config = read;
    return status;
}

/* ---- Sizes --------------------------------------------------------------------------------- */

double llama_config_step_elements(const llama_config *c)
{
    double queries = (double)c->heads * c->head_dim, keys = (double)c->kv_heads * c->head_dim;
    double layer = c->hidden * (2 * queries + 2 * keys + 3.0 * c->inner);
    return c->layers * layer + (double)c->vocabulary * c->hidden;
}

double llama_config_elements(const llama_config *c)
{
    return llama_config_step_elements(c) + (c->tied ? 0 : (double)c->vocabulary * c->hidden);
}

double llama_config_rank_elements(const llama_config *c, double ranks)
{
    double words = (double)c->vocabulary * c->hidden;
    double layers = llama_config_step_elements(c) - words;
    return layers / ranks + words + (c->tied ? 0 : words / ranks);
}

double llama_config_kv_bytes(const llama_config *c, size_t element_bytes)
{
    return 2.0 * c->layers * c->kv_heads * c->head_dim * (double)element_bytes;
}
