/* Memory in pages of a chosen size, and which size the system gave. Programs have their caches in
 * ordinary pages unless they ask for others, and reading those takes longer. kv_cache.c has its
 * memory from here. */
#ifndef BENCH_PAGES_H
#define BENCH_PAGES_H

#include <stddef.h>

/* What a row's memory is in. */
enum { PAGES_SMALL, PAGES_HUGE, PAGES_KINDS };

#define HUGE_PAGE ((size_t)2 << 20)

/* `bytes`, a multiple of HUGE_PAGE, that begin at such a multiple: in ordinary pages whatever the
 * system's default is, or with the request for huge ones, which is only advice. `reserve` 0: only
 * addresses, memory comes with the first write. NULL without memory. */
void *pages_map(size_t bytes, int kind, int reserve);
void pages_unmap(void *memory, size_t bytes);

/* How many bytes are in huge pages, as the system tells; -1 if it does not. */
double pages_huge_bytes(const void *memory, size_t bytes);

/* Bytes of an ordinary page. */
size_t pages_small_bytes(void);

#endif
