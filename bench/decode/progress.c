/* The progress line; see progress.h. decode/decode.c keeps it up to date between rows,
 * decode/measure.c within one. */
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

#include "common/elements.h"
#include "common/launch.h"

/* Back to the first column, and clear to the end of the line. */
#define CLEAR "\r\033[K"

void progress_init(progress *p, int rows)
{
    *p = (progress){.enabled = launch.rank == 0 && isatty(STDERR_FILENO), .rows = rows};
}

void progress_say(const progress *p, const char *what)
{
    if (p->enabled)
        fprintf(stderr, CLEAR "row %d of %d: %s", p->row + 1, p->rows, what);
}

void progress_row(void *context, double done)
{
    const progress *p = context;
    if (p->enabled)
        fprintf(stderr, CLEAR "row %d of %d: %d tokens on %d ranks, %s: %.0f %%", p->row + 1,
                p->rows, (int)p->shape->tokens, p->shape->ranks, element_name(p->shape->kv_dtype),
                100 * done);
}

void progress_clear(const progress *p)
{
    if (p->enabled)
        fputs(CLEAR, stderr);
}
