/* Runs side by side, as a table or as a page. */
#ifndef BENCH_COMPARE_H
#define BENCH_COMPARE_H

/* The command with its two files; returns an exit code, or becomes the script. */
int compare_command(int argc, char **argv);

/* Likewise for a page about some files. */
int report_command(int argc, char **argv);

#endif
