/* The host device as its own files see it. host.c opens it. */
#ifndef TA_HOST_HOST_H
#define TA_HOST_HOST_H

#include "device/attention.h"
#include "device/device.h"
#include "kernels.h"
#include "pool.h"

typedef struct ta_host {
    ta_device device;
    const ta_host_kernels *kernels;
    int64_t row_ahead_bytes; /* as ta_host_row_ahead_bytes() says */
    ta_pool *pool;
} ta_host;

/* Attention over full sequences (host/attention/attention.c). */
extern const ta_attention_ops ta_host_attention;

#endif
