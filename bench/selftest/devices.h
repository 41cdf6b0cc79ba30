/* The devices that the self-test is about. */
#ifndef BENCH_DEVICES_H
#define BENCH_DEVICES_H

enum { DEVICES_MOST = 64, DEVICE_NAME = 32 };

/* Devices of one kind, "cuda" say, by their numbers from 0. */
typedef struct device_list {
    int count;
    char names[DEVICES_MOST][DEVICE_NAME];
    int kind_count[DEVICES_MOST]; /* how many of the same kind are in the list */
    int first_of_kind[DEVICES_MOST];
    char why[1024]; /* the library's sentences about those that are not there */
} device_list;

/* `wanted` is "auto" (all GPUs), a kind ("cuda": all of it), or one device ("cuda:1", "host"). */
void devices_find(const char *wanted, device_list *list);

/* Let the programs that are started from now on find the modules that this one has found. */
void devices_share_modules(void);

#endif
