/* What a test program can be told: `--seed N` (or TA_TEST_SEED) runs that random case alone,
 * `--cases N` that many of them, from the seed on if there is one, `--every N` about one in N of
 * the cases of a program that goes through all combinations, always the same ones, `--device NAME`
 * (or TA_TEST_DEVICE) runs on that device, `--group ccl` on one of them for each rank, with a group
 * that moves their memory, `--group each` on one of them for each rank with a group of threads,
 * `--exchange direct` with that exchange wherever a case draws one, `--ranks N` leaves out cases of
 * more ranks (a machine has only so many GPUs), `--algorithm tree|ring-kv|ring-q` in that way
 * throughout. */
#ifndef TESTS_OPTIONS_H
#define TESTS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <treeattn/treeattn.h>

typedef struct test_options {
    const char *device; /* "host" unless told */
    bool one_seed;
    uint64_t seed;
    int cases;              /* 0: the program's own number */
    int every;              /* 1 unless told */
    ta_algorithm algorithm; /* TA_ALGORITHM_AUTO: as the program likes */
    bool messages;          /* set by a program whose group only has messages */
    bool others;            /* likewise, where other ranks may have another kind of device */
    bool ccl;               /* ranks have a device each, and a group that moves their memory */
    bool each;              /* ranks have a device each */
    bool direct;            /* every tree is exchanged directly */
    int ranks;              /* the most that a case may have; 0: any number */
} test_options;

extern test_options options;

/* Reads the environment, then the arguments. Returns false if it does not understand one. */
bool options_read(int argc, char **argv);

bool options_host(void);

/* May ranks use each other's memory? On host devices and with a GPU for each of them, unless a
 * program says that its group does not have it. */
bool options_direct(void);

/* The exchange that a case drew, or the one that all are to have. */
ta_exchange options_exchange(ta_exchange drawn);

/* Is this one of the cases that `--every` leaves? Spread so that no loop is always left out. */
bool options_chosen(uint64_t number);

/* May a case have so many ranks? Those that may not are counted for options_left_out(). */
bool options_ranks(int ranks);

/* Print how many cases options_ranks() left out, if any. */
void options_left_out(void);

#endif
