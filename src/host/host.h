/* The host device as its own files see it. host.c opens it. */
#ifndef TA_HOST_HOST_H
#define TA_HOST_HOST_H

#include "../device.h"
#include "../local.h"
#include "kernels.h"
#include "pool.h"

typedef struct ta_host {
    ta_device device;
    const ta_host_kernels *kernels;
    ta_pool *pool;
} ta_host;

/* Attention over full sequences (local.c). */
extern const ta_local_ops ta_host_local;

#endif
