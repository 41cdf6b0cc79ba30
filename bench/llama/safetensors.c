/* See safetensors.h. */
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json_tree.h"
#include "config.h"

#define MAX_HEADER ((uint64_t)100 << 20) /* bytes, as the format has it */

typedef struct mapped_file {
    char *data;
    size_t bytes;
    json_tree header; /* the tensors' names are in it */
} mapped_file;

struct safetensors {
    mapped_file *files;
    size_t file_count;
    safetensor *tensors; /* sorted by name */
    size_t count, capacity;
};

typedef struct fault_text {
    const char *path;
    char *text;
    size_t capacity;
} fault_text;

__attribute__((format(printf, 2, 3))) static int fault(const fault_text *f, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int used = snprintf(f->text, f->capacity, "%s: ", f->path);
    if (used > 0 && (size_t)used < f->capacity)
        vsnprintf(f->text + used, f->capacity - (size_t)used, format, arguments);
    va_end(arguments);
    return -1;
}

/* ---- One tensor ---------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int64_t bytes;
    ta_dtype dtype;
} types[] = {
    {"BF16", 2, TA_BF16},
    {"F16", 2, TA_F16},
    {"F32", 4, TA_F32},
    {"F64", 8, TA_DTYPE_NONE},
    {"BOOL", 1, TA_DTYPE_NONE},
    {"U8", 1, TA_DTYPE_NONE},
    {"I8", 1, TA_DTYPE_NONE},
    {"U16", 2, TA_DTYPE_NONE},
    {"I16", 2, TA_DTYPE_NONE},
    {"U32", 4, TA_DTYPE_NONE},
    {"I32", 4, TA_DTYPE_NONE},
    {"U64", 8, TA_DTYPE_NONE},
    {"I64", 8, TA_DTYPE_NONE},
    {"F8_E4M3", 1, TA_DTYPE_NONE},
    {"F8_E5M2", 1, TA_DTYPE_NONE},
};
enum { TYPES = sizeof types / sizeof *types };

/* Bytes of an element; 0 for a type that is not known, which counts as many as the file says. */
static int64_t read_type(const json_item *item, safetensor *tensor)
{
    snprintf(tensor->type, sizeof tensor->type, "%s", item->text);
    for (int i = 0; i < TYPES; i++) {
        if (strcmp(types[i].name, item->text) == 0) {
            tensor->dtype = types[i].dtype;
            return types[i].bytes;
        }
    }
    return 0;
}

static int read_shape(const fault_text *f, const json_item *shape, safetensor *tensor,
                      int64_t *elements)
{
    *elements = 1;
    for (const json_item *axis = shape->first; axis; axis = axis->next) {
        if (!axis->is_whole || axis->whole < 0 || tensor->axes == SAFETENSORS_MAX_AXES ||
            __builtin_mul_overflow(*elements, axis->whole, elements))
            return fault(f, "the shape of '%s' must be at most %d whole numbers from 0",
                         tensor->name, SAFETENSORS_MAX_AXES);
        tensor->shape[tensor->axes++] = axis->whole;
    }
    return 0;
}

/* Where it is, in the bytes that follow the header. */
static int read_place(const fault_text *f, const json_item *offsets, safetensor *tensor,
                      const char *bytes, int64_t byte_count, int64_t wanted)
{
    const json_item *begin = offsets->first, *end = begin ? begin->next : NULL;
    if (!end || end->next || !begin->is_whole || !end->is_whole)
        return fault(f, "data_offsets of '%s' must be two whole numbers", tensor->name);
    if (begin->whole < 0 || begin->whole > end->whole || end->whole > byte_count)
        return fault(f, "'%s' is at bytes %lld to %lld, but the file has %lld behind its header",
                     tensor->name, (long long)begin->whole, (long long)end->whole,
                     (long long)byte_count);
    if (wanted >= 0 && end->whole - begin->whole != wanted)
        return fault(f, "'%s' has %lld bytes, but its type and shape need %lld", tensor->name,
                     (long long)(end->whole - begin->whole), (long long)wanted);
    tensor->data = bytes + begin->whole;
    return 0;
}

static int read_tensor(const fault_text *f, const json_item *item, const char *bytes,
                       int64_t byte_count, safetensor *tensor)
{
    const json_item *type = json_find(item, "dtype"), *shape = json_find(item, "shape"),
                    *offsets = json_find(item, "data_offsets");
    int64_t elements, wanted;
    *tensor = (safetensor){.name = item->name};
    if (!type || type->kind != JSON_STRING || !shape || shape->kind != JSON_ARRAY || !offsets ||
        offsets->kind != JSON_ARRAY)
        return fault(f, "'%s' must have dtype, shape and data_offsets", item->name);
    if (read_shape(f, shape, tensor, &elements) != 0)
        return -1;
    int64_t each = read_type(type, tensor);
    if (__builtin_mul_overflow(elements, each, &wanted))
        return fault(f, "'%s' has more bytes than there can be", item->name);
    return read_place(f, offsets, tensor, bytes, byte_count, each ? wanted : -1);
}

/* ---- One file ------------------------------------------------------------------------------ */

static int add_tensors(safetensors *model, const fault_text *f, const mapped_file *file,
                       uint64_t header_bytes)
{
    const char *bytes = file->data + 8 + header_bytes;
    int64_t byte_count = (int64_t)(file->bytes - 8 - header_bytes);
    for (const json_item *item = file->header.root->first; item; item = item->next) {
        if (strcmp(item->name, "__metadata__") == 0)
            continue;
        if (model->count == model->capacity) {
            size_t wanted = model->capacity ? 2 * model->capacity : 256;
            safetensor *grown = realloc(model->tensors, wanted * sizeof *grown);
            if (!grown)
                return fault(f, "not enough memory for the list of tensors");
            model->tensors = grown;
            model->capacity = wanted;
        }
        if (read_tensor(f, item, bytes, byte_count, &model->tensors[model->count]) != 0)
            return -1;
        model->count++;
    }
    return 0;
}

static int map_file(const fault_text *f, mapped_file *file)
{
    struct stat status;
    int descriptor = open(f->path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return fault(f, "cannot be read: %s", strerror(errno));
    int known = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    if (known && status.st_size >= 8) {
        file->bytes = (size_t)status.st_size;
        file->data = mmap(NULL, file->bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    }
    close(descriptor);
    if (!known)
        return fault(f, "is not a file");
    if (!file->data)
        return fault(f, "has %lld bytes, too few for a safetensors file",
                     (long long)status.st_size);
    if (file->data != MAP_FAILED)
        return 0;
    file->data = NULL;
    return fault(f, "cannot be mapped: %s", strerror(errno));
}

static int read_file(safetensors *model, mapped_file *file, const fault_text *f)
{
    char why[256];
    uint64_t header_bytes = 0;
    if (map_file(f, file) != 0)
        return -1;
    for (int i = 0; i < 8; i++) /* little-endian */
        header_bytes |= (uint64_t)(unsigned char)file->data[i] << 8 * i;
    if (header_bytes > MAX_HEADER || header_bytes > file->bytes - 8)
        return fault(f, "its header would have %llu bytes, but the file has %zu: not safetensors",
                     (unsigned long long)header_bytes, file->bytes);
    if (json_tree_read(&file->header, file->data + 8, (size_t)header_bytes, why, sizeof why) != 0)
        return fault(f, "its header is %s", why);
    if (file->header.root->kind != JSON_OBJECT)
        return fault(f, "its header must be a JSON object");
    return add_tensors(model, f, file, header_bytes);
}

/* ---- A model ------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const safetensor *)a)->name, ((const safetensor *)b)->name);
}

/* The files that an index names, each once: text is freed by the caller. Returns how many, or
 * -1. */
static int list_shards(const fault_text *f, const json_item *map, const char ***names)
{
    int count = 0;
    for (const json_item *item = map ? map->first : NULL; item; item = item->next) {
        int known = 0;
        if (item->kind != JSON_STRING || strchr(item->text, '/') || item->text[0] == '.')
            return fault(f, "'%s' must be in a file of the same folder", item->name);
        for (int i = 0; i < count && !known; i++)
            known = strcmp((*names)[i], item->text) == 0;
        if (known)
            continue;
        const char **grown = realloc(*names, ((size_t)count + 1) * sizeof *grown);
        if (!grown)
            return fault(f, "not enough memory");
        *names = grown;
        grown[count++] = item->text;
    }
    return count ? count : fault(f, "weight_map is missing or empty");
}

static int read_files(safetensors *model, const char *folder, const char *const *names, int count,
                      char *error, size_t capacity)
{
    model->files = calloc((size_t)count, sizeof *model->files);
    for (int i = 0; model->files && i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", names[i]);
        fault_text f = {path, error, capacity};
        model->file_count = (size_t)i + 1;
        if (read_file(model, &model->files[i], &f) != 0)
            return -1;
    }
    if (model->files)
        return 0;
    snprintf(error, capacity, "not enough memory for %d files", count);
    return -1;
}

static int read_index(safetensors *model, const char *folder, const char *path, char *error,
                      size_t capacity)
{
    char why[256];
    json_tree index;
    size_t length;
    const char **names = NULL;
    fault_text f = {path, error, capacity};
    char *text = llama_read_text(path, &length, error, capacity);
    if (!text)
        return -1;
    int status = json_tree_read(&index, text, length, why, sizeof why);
    free(text);
    if (status != 0)
        return fault(&f, "%s", why);
    int count = list_shards(&f, json_find(index.root, "weight_map"), &names);
    status = count < 0 ? -1 : read_files(model, folder, names, count, error, capacity);
    free(names);
    json_tree_free(&index);
    return status;
}

static int is_single_file(const char *path)
{
    static const char ending[] = ".safetensors";
    size_t length = strlen(path), tail = sizeof ending - 1;
    return length > tail && strcmp(path + length - tail, ending) == 0;
}

static const char index_name[] = "model.safetensors.index.json";
static const char single_name[] = "model.safetensors";

int safetensors_in(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, single_name);
    if (access(path, F_OK) == 0)
        return 1;
    snprintf(path, sizeof path, "%s/%s", folder, index_name);
    return access(path, F_OK) == 0;
}

safetensors *safetensors_open(const char *path, char *error, size_t capacity)
{
    char index[4096];
    const char *single = single_name;
    int status;
    safetensors *model = calloc(1, sizeof *model);
    if (!model) {
        snprintf(error, capacity, "not enough memory");
        return NULL;
    }
    snprintf(index, sizeof index, "%s/%s", path, index_name);
    if (is_single_file(path))
        status = read_files(model, "", &path, 1, error, capacity);
    else if (access(index, F_OK) == 0)
        status = read_index(model, path, index, error, capacity);
    else
        status = read_files(model, path, &single, 1, error, capacity);
    if (status == 0 && model->count)
        qsort(model->tensors, model->count, sizeof *model->tensors, by_name);
    for (size_t i = 1; status == 0 && i < model->count; i++) {
        if (by_name(&model->tensors[i - 1], &model->tensors[i]) == 0) {
            fault_text f = {path, error, capacity};
            status = fault(&f, "tensor '%s' is there twice", model->tensors[i].name);
        }
    }
    if (status == 0)
        return model;
    safetensors_close(model);
    return NULL;
}

void safetensors_close(safetensors *model)
{
    if (!model)
        return;
    for (size_t i = 0; i < model->file_count; i++) {
        json_tree_free(&model->files[i].header);
        if (model->files[i].data)
            munmap(model->files[i].data, model->files[i].bytes);
    }
    free(model->files);
    free(model->tensors);
    free(model);
}

const safetensor *safetensors_find(const safetensors *model, const char *name)
{
    safetensor wanted = {.name = name};
    return model->count ? bsearch(&wanted, model->tensors, model->count, sizeof wanted, by_name)
                        : NULL;
}
