/* `treeattn-bench compare`: hands two JSON files to compare.py, which is installed beside the
 * program's data. Python reads JSON without a library of ours, and the plots need it anyway. */
#include "compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/exit_code.h"

int compare_command(int argc, char **argv)
{
    static const char *const paths[] = {BENCH_DATA "/compare.py",
                                        BENCH_SOURCE "/compare/compare.py"};
    if (argc != 2) {
        fputs("usage: treeattn-bench compare A.json B.json\n", stderr);
        return EXIT_USAGE;
    }
    for (int i = 0; i < 2; i++) {
        if (access(paths[i], R_OK) != 0)
            continue;
        fflush(stdout);
        execlp("python3", "python3", paths[i], argv[0], argv[1], (char *)NULL);
        fputs("treeattn-bench: compare needs python3, which could not be started\n", stderr);
        return EXIT_WRONG;
    }
    fprintf(stderr, "treeattn-bench: %s is missing: install the program again\n", paths[0]);
    return EXIT_WRONG;
}
