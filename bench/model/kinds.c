/* See kinds.h. */
#include "kinds.h"

#include <stdio.h>

void model_kinds_header(const char *cluster)
{
    printf("# treeattn-bench model: %s, exchanges of a decode step by kind\n"
           "# predicted, not measured, in microseconds; exchange: the step without attending; *: "
           "chosen\n",
           cluster);
    printf("#%9s %6s %-12s %10s %10s %10s %6s\n", "tokens", "ranks", "kind", "step", "exchange",
           "sent", "msgs");
    printf("#%9s %6s %-12s %10s %10s %10s %6s\n", "", "", "", "us", "us", "KB", "");
}

void model_kinds_row(int64_t tokens, int ranks, const ta_prediction *candidates, int count)
{
    for (int i = 0; i < count; i++) {
        const ta_prediction *p = &candidates[i];
        const ta_predicted_call *step = &p->step;
        if (p->algorithm != TA_ALGORITHM_TREE || !p->possible)
            continue;
        printf("%10lld %6d %-12s %10.1f %10.1f %10.1f %6llu %s\n", (long long)tokens, ranks,
               ranks > 1 ? ta_exchange_name(p->exchange) : "-", step->seconds * 1e6,
               (step->seconds - step->attend_seconds) * 1e6, (double)step->bytes_sent * 1e-3,
               (unsigned long long)step->messages_sent, p->chosen ? "*" : "");
    }
}
