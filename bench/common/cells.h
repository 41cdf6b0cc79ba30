/* The columns and cells of a table: heads, short texts, and ratios in few characters. */
#ifndef BENCH_CELLS_H
#define BENCH_CELLS_H

typedef struct cell {
    char text[48];
} cell;

__attribute__((format(printf, 1, 2))) cell cell_as(const char *format, ...);

/* With so many decimals; N/A if it is not known, NaN. */
cell cell_number(double value, int decimals);

/* A ratio in at most four characters up to 9999, and a range of them. */
cell cell_ratio(double value);
cell cell_range(double low, double high);

/* A column: its name, its unit, its characters, and the number of the reason why it is there. */
typedef struct table_column {
    const char *name, *unit;
    int width, when;
} table_column;

/* In a list of columns, X(name, unit, width, when, value): one of them, and its cell of a row,
 * where it is `shown`, an array that they see. */
#define CELL_COLUMN(name, unit, width, when, value) {name, unit, width, when},
#define CELL_PRINT(name, unit, width, when, value)                                                 \
    if (shown[when])                                                                               \
        printf(" %*s", width, (value).text);

/* Two lines, with the names and the units of those whose reason is `shown`. */
void table_print_heads(const table_column *columns, int count, const int *shown);

#endif
