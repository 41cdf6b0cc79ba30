/* Tensors of safetensors files, as published: 8 bytes with the length of a JSON header, the header
 * with type, shape and place of each tensor, the bytes. The files are mapped and never written;
 * nothing of a tensor is outside its file. model_weights.c takes its matrices from here. */
#ifndef BENCH_LLAMA_SAFETENSORS_H
#define BENCH_LLAMA_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include <treeattn/treeattn.h>

#define SAFETENSORS_MAX_AXES 8

typedef struct safetensor {
    const char *name;
    char type[16];  /* as the file has it: "BF16" */
    ta_dtype dtype; /* TA_DTYPE_NONE: none that the library has */
    int axes;
    int64_t shape[SAFETENSORS_MAX_AXES];
    const void *data; /* aligned to nothing in particular */
} safetensor;

typedef struct safetensors safetensors;

/* Open the model in a folder: model.safetensors, or the files that model.safetensors.index.json
 * names; or one file, if the path ends with ".safetensors". NULL with a sentence in `error`. */
safetensors *safetensors_open(const char *path, char *error, size_t capacity);
void safetensors_close(safetensors *model);

/* NULL if there is none of that name. */
const safetensor *safetensors_find(const safetensors *model, const char *name);

/* Is there something in this folder to open? */
int safetensors_in(const char *folder);

#endif
