/* Models: config.json files, safetensors files, good ones and broken ones, and random weights. The
 * files are written here, by hand from the published format. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unity.h>

#include "common/elements.h"
#include "common/pages.h"
#include "llama/config.h"
#include "llama/model_weights.h"
#include "llama/safetensors.h"
#include "llama/tensor_list.h"

static char folder[] = "/tmp/treeattn-llama-XXXXXX";
static char error[1024];

void setUp(void)
{
    error[0] = '\0';
}

void tearDown(void)
{
}

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_bytes(const char *name, const void *data, size_t bytes)
{
    FILE *file = fopen(path_of(name), "wb");
    TEST_ASSERT_NOT_NULL(file);
    TEST_ASSERT_EQUAL(bytes, fwrite(data, 1, bytes, file));
    TEST_ASSERT_EQUAL(0, fclose(file));
}

static void says(const char *text)
{
    if (!strstr(error, text)) {
        char message[2048];
        snprintf(message, sizeof message, "'%s' is not in the error: %s", text, error);
        TEST_FAIL_MESSAGE(message);
    }
}

/* ---- config.json --------------------------------------------------------------------------- */

#define SIZES                                                                                      \
    "\"hidden_size\": 2048, \"intermediate_size\": 8192, \"num_hidden_layers\": 16, "              \
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"vocab_size\": 128256, "            \
    "\"rms_norm_eps\": 1e-05, "
#define LLAMA3_SCALING                                                                             \
    "\"rope_scaling\": {\"factor\": 32.0, \"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0, "   \
    "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}, "

static int read_config(const char *text, llama_config *config)
{
    write_bytes("config.json", text, strlen(text));
    return llama_config_read(path_of("config.json"), config, error, sizeof error);
}

static void test_published_config_is_the_builtin_one(void)
{
    llama_config read, builtin;
    TEST_ASSERT_EQUAL_MESSAGE(
        0,
        read_config("{" SIZES LLAMA3_SCALING "\"rope_theta\": 500000.0, \"head_dim\": 64, "
                    "\"tie_word_embeddings\": true, \"hidden_act\": \"silu\", "
                    "\"model_type\": \"llama\", \"attention_bias\": false}",
                    &read),
        error);
    TEST_ASSERT_EQUAL(0, llama_config_builtin("3.2-1b", &builtin));
    strcpy(read.name, builtin.name);
    memset(read.name + strlen(read.name), 0, sizeof read.name - strlen(read.name));
    TEST_ASSERT_EQUAL_MEMORY(&builtin, &read, sizeof read);
    TEST_ASSERT_EQUAL(-1, llama_config_builtin("3.2", &builtin));
    /* 1.24 thousand million weights */
    TEST_ASSERT_TRUE(fabs(llama_config_elements(&builtin) - 1.2358e9) < 1e6);
}

static void test_family(void)
{
    llama_config c;
    TEST_ASSERT_EQUAL_MESSAGE(
        0,
        read_config("{" SIZES "\"model_type\": \"qwen2\", \"use_sliding_window\": false, "
                    "\"sliding_window\": 4096, \"rope_theta\": 1000000}",
                    &c),
        error);
    TEST_ASSERT_TRUE(c.qkv_bias && !c.qk_norm && !c.rope.scaled && c.head_dim == 64);
    TEST_ASSERT_EQUAL_MESSAGE(
        0,
        read_config("{" SIZES
                    "\"model_type\": \"qwen3\", \"head_dim\": 128, \"rope_scaling\": null,"
                    "\"rope_parameters\": {\"rope_theta\": 5000000, \"rope_type\": \"default\"}}",
                    &c),
        error);
    TEST_ASSERT_TRUE(c.qk_norm && !c.qkv_bias && c.head_dim == 128 && c.rope.theta == 5e6);
    /* rope_parameters that lack rope_theta: it is still beside them. */
    TEST_ASSERT_EQUAL_MESSAGE(0,
                              read_config("{" SIZES
                                          "\"rope_theta\": 500000, \"partial_rotary_factor\": 1.0, "
                                          "\"rope_parameters\": {\"rope_type\": \"default\"}}",
                                          &c),
                              error);
    TEST_ASSERT_TRUE(c.rope.theta == 500000 && !c.rope.scaled);
}

static void test_refused_configs(void)
{
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"[]", "must be a JSON object"},
        {"{", "not JSON"},
        {"{}", "hidden_size is missing"},
        {"{" SIZES "\"model_type\": \"gpt2\"}", "model_type must be"},
        {"{" SIZES "\"hidden_act\": \"gelu\"}", "hidden_act"},
        {"{" SIZES "\"mlp_bias\": true}", "mlp_bias"},
        {"{" SIZES "\"attention_bias\": true}", "attention_bias"},
        {"{" SIZES "\"head_dim\": 60}", "multiple of 8"},
        {"{" SIZES "\"head_dim\": \"x\"}", "head_dim is something else"},
        {"{" SIZES "\"quantization_config\": {}}", "quantization_config"},
        {"{" SIZES "\"model_type\": \"mistral\", \"sliding_window\": 4096}", "sliding_window"},
        {"{" SIZES "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}}", "'yarn'"},
        {"{" SIZES "\"rope_scaling\": {\"rope_type\": \"llama3\"}}", "factor is missing"},
        {"{" SIZES "\"partial_rotary_factor\": 0.5}", "partial_rotary_factor must be 1"},
        {"{" SIZES "\"rope_parameters\": {\"partial_rotary_factor\": 0.75}}",
         "partial_rotary_factor must be 1"},
        {"{\"num_key_value_heads\": 7, " SIZES "\"x\": 0}", "multiple of num_key_value_heads"},
        {"{\"hidden_size\": -1, " SIZES "\"x\": 0}", "hidden_size is something else"},
    };
    llama_config c;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        TEST_ASSERT_EQUAL_MESSAGE(-1, read_config(wrong[i].text, &c), wrong[i].text);
        says(wrong[i].says);
        says("config.json");
    }
    TEST_ASSERT_EQUAL(-1, llama_config_read("/nowhere/config.json", &c, error, sizeof error));
    says("cannot be read");
}

/* ---- safetensors --------------------------------------------------------------------------- */

/* A file of this header and so many bytes, 0, 1, 2, … */
static void write_file(const char *name, const char *header, int bytes)
{
    char all[4096] = {0};
    size_t length = strlen(header);
    for (int i = 0; i < 8; i++)
        all[i] = (char)(length >> 8 * i);
    memcpy(all + 8, header, length);
    for (int i = 0; i < bytes; i++)
        all[8 + length + (size_t)i] = (char)i;
    write_bytes(name, all, 8 + length + (size_t)bytes);
}

static void test_odd_but_valid_header(void)
{
    /* Space behind it, metadata, escapes, a tensor without elements, a scalar, a type that is not
     * ours, an odd length, so that nothing is aligned. */
    write_file(
        "model.safetensors",
        "{\"__metadata__\":{\"format\":\"pt\"}, \"\\u0061\":{\"dtype\":\"BF16\",\"shape\":[2,3],"
        "\"data_offsets\":[3,15]},\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],"
        "\"data_offsets\":[0,0]},\"s\":{\"data_offsets\":[15,19],\"shape\":[],"
        "\"dtype\":\"F32\"},\"new\":{\"dtype\":\"F4\",\"shape\":[6],\"data_offsets\":[0,3]}}   ",
        19);
    safetensors *model = safetensors_open(folder, error, sizeof error);
    TEST_ASSERT_NOT_NULL_MESSAGE(model, error);
    const safetensor *a = safetensors_find(model, "a");
    TEST_ASSERT_NOT_NULL(a);
    TEST_ASSERT_TRUE(a->dtype == TA_BF16 && a->axes == 2 && a->shape[1] == 3);
    TEST_ASSERT_EQUAL(3, *(const char *)a->data);
    TEST_ASSERT_EQUAL(0, safetensors_find(model, "s")->axes);
    TEST_ASSERT_EQUAL(TA_DTYPE_NONE, safetensors_find(model, "new")->dtype);
    TEST_ASSERT_NULL(safetensors_find(model, "__metadata__"));
    TEST_ASSERT_TRUE(safetensors_in(folder));
    safetensors_close(model);
}

static void test_broken_files(void)
{
#define TENSOR(shape, from, to)                                                                    \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[" shape "],\"data_offsets\":[" from "," to "]}}"
    static const struct {
        const char *header, *says;
    } wrong[] = {
        {"x", "not JSON"},
        {"[]", "must be a JSON object"},
        {"{\"a\":1}", "must have dtype, shape and data_offsets"},
        {TENSOR("2", "0", "12"), "its type and shape need 8"},
        {TENSOR("4", "4", "20"), "the file has 16 behind its header"},
        {TENSOR("2", "-8", "0"), "is at bytes -8 to 0"},
        {TENSOR("2", "8", "0"), "is at bytes 8 to 0"},
        {TENSOR("2", "9223372036854775800", "9223372036854775807"), "the file has 16"},
        {TENSOR("4611686018427387904,4", "0", "0"), "shape of 'a'"},
        {TENSOR("4611686018427387904", "0", "0"), "more bytes than there can be"},
        {TENSOR("-2", "0", "8"), "shape of 'a'"},
        {TENSOR("2.0", "0", "8"), "shape of 'a'"},
        {TENSOR("1,1,1,1,1,1,1,1,2", "0", "8"), "at most 8"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
         "'a' is there twice"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", "two whole numbers"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_file("model.safetensors", wrong[i].header, 16);
        safetensors *model = safetensors_open(folder, error, sizeof error);
        TEST_ASSERT_NULL_MESSAGE(model, wrong[i].header);
        says(wrong[i].says);
    }
    write_bytes("model.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    TEST_ASSERT_NULL(safetensors_open(folder, error, sizeof error));
    says("its header would have");
    write_bytes("model.safetensors", "\3\0\0\0\0\0\0\0{}", 10);
    TEST_ASSERT_NULL(safetensors_open(folder, error, sizeof error));
    says("its header would have 3 bytes");
    write_bytes("model.safetensors", "\2\0\0", 3);
    TEST_ASSERT_NULL(safetensors_open(folder, error, sizeof error));
    says("too few");
    TEST_ASSERT_NULL(safetensors_open("/nowhere.safetensors", error, sizeof error));
    says("cannot be read");
}

static void write_index(const char *text)
{
    write_bytes("model.safetensors.index.json", text, strlen(text));
}

static void test_index(void)
{
    write_file("one.safetensors", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
               1);
    write_file("two.safetensors", "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
               2);
    write_index("{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}");
    safetensors *model = safetensors_open(folder, error, sizeof error);
    TEST_ASSERT_NOT_NULL_MESSAGE(model, error);
    TEST_ASSERT_EQUAL(0, *(const char *)safetensors_find(model, "a")->data);
    TEST_ASSERT_EQUAL(1, *(const char *)safetensors_find(model, "b")->data);
    safetensors_close(model);
    write_index("{\"weight_map\":{\"a\":\"../one.safetensors\"}}");
    TEST_ASSERT_NULL(safetensors_open(folder, error, sizeof error));
    says("same folder");
    write_index("{\"weight_map\":{\"a\":\"three.safetensors\"}}");
    TEST_ASSERT_NULL(safetensors_open(folder, error, sizeof error));
    says("three.safetensors: cannot be read");
    write_index("{\"metadata\":{}}");
    TEST_ASSERT_NULL(safetensors_open(folder, error, sizeof error));
    says("weight_map");
    remove(path_of("model.safetensors.index.json"));
}

/* ---- A model ------------------------------------------------------------------------------- */

static char *file_bytes;
static size_t file_used, header_used;
static char header[1 << 16];

/* Add a tensor, whose elements follow one another, to the file that is being written. */
static void add_tensor(const char *name, ta_dtype dtype, const int64_t *shape, int axes,
                       const void *data)
{
    static const char *const names[] = {[TA_F32] = "F32", [TA_F16] = "F16", [TA_BF16] = "BF16"};
    size_t bytes = element_bytes(dtype) * (size_t)shape[0] * (size_t)(axes == 2 ? shape[1] : 1);
    char shape_text[64];
    snprintf(shape_text, sizeof shape_text, axes == 2 ? "[%lld,%lld]" : "[%lld]",
             (long long)shape[0], (long long)shape[axes - 1]);
    header_used += (size_t)snprintf(
        header + header_used, sizeof header - header_used,
        "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
        file_used ? "," : "{", name, names[dtype], shape_text, file_used, file_used + bytes);
    file_bytes = realloc(file_bytes, file_used + bytes);
    memcpy(file_bytes + file_used, data, bytes);
    file_used += bytes;
}

static void add_list(const tensor_kind *kinds, const llama_config *config, const char *prefix,
                     const void *fields)
{
    for (const tensor_kind *kind = kinds; kind->name; kind++) {
        char name[96];
        int64_t shape[2], first;
        const void *field = (const char *)fields + kind->at;
        if (!tensor_exists(kind, config))
            continue;
        snprintf(name, sizeof name, "%s%s", prefix, kind->name);
        tensor_range(kind->rows, config, 0, 1, &first, &shape[0]);
        tensor_range(kind->columns, config, 0, 1, &first, &shape[1]);
        if (kind->columns == AXIS_NONE)
            add_tensor(name, TA_F32, shape, 1, *(const float *const *)field);
        else
            add_tensor(name, ((const llama_matrix *)field)->dtype, shape, 2,
                       ((const llama_matrix *)field)->data);
    }
}

static void write_model(const llama_part *part)
{
    file_used = header_used = 0;
    add_list(model_tensors, &part->config, "", part);
    for (int i = 0; i < part->config.layers; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "model.layers.%d.", i);
        add_list(layer_tensors, &part->config, prefix, &part->layers[i]);
    }
    strcat(header, "}");
    size_t length = strlen(header);
    char *all = malloc(8 + length + file_used);
    for (int i = 0; i < 8; i++)
        all[i] = (char)(length >> 8 * i);
    memcpy(all + 8, header, length);
    memcpy(all + 8 + length, file_bytes, file_used);
    write_bytes("model.safetensors", all, 8 + length + file_used);
    free(all);
}

static void test_written_model_is_read_back(void)
{
    llama_config config;
    llama_config_builtin("tiny", &config);
    config.qkv_bias = config.qk_norm = 1;
    for (int dtype = TA_F32; dtype <= TA_BF16; dtype++) {
        llama_weights *made = llama_weights_random(&config, (ta_dtype)dtype, 5, 0, 1, 2,
                                                   PAGES_SMALL, error, sizeof error);
        TEST_ASSERT_NOT_NULL_MESSAGE(made, error);
        write_model(llama_weights_all(made));
        llama_weights *read = llama_weights_load(&config, folder, error, sizeof error);
        TEST_ASSERT_NOT_NULL_MESSAGE(read, error);
        const llama_layer *a = &llama_weights_all(made)->layers[1],
                          *b = &llama_weights_all(read)->layers[1];
        TEST_ASSERT_EQUAL_MEMORY(a->down.data, b->down.data,
                                 (size_t)(config.hidden * config.inner) *
                                     element_bytes((ta_dtype)dtype));
        TEST_ASSERT_EQUAL_MEMORY(a->k_bias, b->k_bias, sizeof(float) * 32);
        TEST_ASSERT_EQUAL_MEMORY(a->q_norm, b->q_norm, sizeof(float) * 16);
        TEST_ASSERT_EQUAL((ta_dtype)dtype, b->gate.dtype);
        llama_weights_free(read);
        config.inner += 8;
        TEST_ASSERT_NULL(llama_weights_load(&config, folder, error, sizeof error));
        says("model.layers.0.mlp.gate_proj.weight' has 2 axes, of 152 and 56, but the config needs "
             "2, "
             "of 160 and 56");
        config.inner -= 8;
        config.layers++;
        TEST_ASSERT_NULL(llama_weights_load(&config, folder, error, sizeof error));
        says("no tensor 'model.layers.2.self_attn.q_proj.weight'");
        config.layers--;
        llama_weights_free(made);
    }
    free(file_bytes);
}

/* Their variance, and that a rank which fills its part alone has the same numbers. */
static void test_random_parts(void)
{
    llama_config config;
    llama_config_builtin("tiny", &config);
    enum { RANKS = 3 };
    llama_weights *whole =
        llama_weights_random(&config, TA_BF16, 1, 0, 1, 1, PAGES_SMALL, error, sizeof error);
    int64_t rows = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        llama_weights *some = llama_weights_random(&config, TA_BF16, 1, rank, RANKS, 2, PAGES_SMALL,
                                                   error, sizeof error);
        llama_part all_part, part;
        TEST_ASSERT_EQUAL(0, llama_part_make(whole, rank, RANKS, &all_part));
        TEST_ASSERT_EQUAL(0, llama_part_make(some, rank, RANKS, &part));
        const llama_matrix *a = &all_part.layers[1].down, *b = &part.layers[1].down;
        for (int64_t row = 0; row < a->rows; row++)
            TEST_ASSERT_EQUAL_MEMORY((const uint16_t *)a->data + row * a->stride,
                                     (const uint16_t *)b->data + row * b->stride,
                                     2 * (size_t)a->columns);
        a = &all_part.layers[0].gate, b = &part.layers[0].gate;
        TEST_ASSERT_EQUAL_MEMORY(a->data, b->data, 2 * (size_t)(a->rows * a->columns));
        TEST_ASSERT_EQUAL_MEMORY(all_part.head.data, part.head.data,
                                 2 * (size_t)(part.head.rows * part.head.columns));
        TEST_ASSERT_EQUAL(rows, part.first_word);
        rows += part.head.rows;
        llama_part_free(&all_part);
        llama_part_free(&part);
        llama_weights_free(some);
    }
    TEST_ASSERT_EQUAL(config.vocabulary, rows);
    const llama_matrix *gate = &llama_weights_all(whole)->layers[0].gate;
    double sum = 0, squares = 0, values[56];
    for (int64_t row = 0; row < gate->rows; row++) {
        element_read(TA_BF16, (const uint16_t *)gate->data + row * gate->stride, 56, values);
        for (int i = 0; i < 56; i++)
            sum += values[i], squares += values[i] * values[i];
    }
    double count = (double)(gate->rows * 56);
    TEST_ASSERT_TRUE(fabs(sum / count) < 0.01);
    TEST_ASSERT_TRUE(fabs(squares / count * 56 - 1) < 0.5);
    llama_weights_free(whole);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    UNITY_BEGIN();
    RUN_TEST(test_published_config_is_the_builtin_one);
    RUN_TEST(test_family);
    RUN_TEST(test_refused_configs);
    RUN_TEST(test_odd_but_valid_header);
    RUN_TEST(test_broken_files);
    RUN_TEST(test_index);
    RUN_TEST(test_written_model_is_read_back);
    RUN_TEST(test_random_parts);
    static const char *const files[] = {"config.json", "model.safetensors", "one.safetensors",
                                        "two.safetensors"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        remove(path_of(files[i]));
    rmdir(folder);
    return UNITY_END() != 0;
}
