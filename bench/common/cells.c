/* See cells.h. decode/table.c and attention/table.c use it. */
#include "cells.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

cell cell_as(const char *format, ...)
{
    cell c;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c.text, sizeof c.text, format, arguments);
    va_end(arguments);
    return c;
}

cell cell_number(double value, int decimals)
{
    return isnan(value) ? cell_as("N/A") : cell_as("%.*f", decimals, value);
}

cell cell_ratio(double value)
{
    return cell_as("%.*f", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value);
}

cell cell_range(double low, double high)
{
    return cell_as("%s-%s", cell_ratio(low).text, cell_ratio(high).text);
}

void table_print_heads(const table_column *columns, int count, const int *shown)
{
    printf("#");
    for (int i = 0; i < count; i++)
        if (shown[columns[i].when])
            printf(" %*s", columns[i].width, columns[i].name);
    printf("\n#");
    for (int i = 0; i < count; i++)
        if (shown[columns[i].when])
            printf(" %*s", columns[i].width, columns[i].unit);
    printf("\n");
}
