/* Bars of text; see bars.h. decode/table.c and model/model.c print them. */
#include "bars.h"

enum { GROUP_WIDTH = 24, NAME_WIDTH = 8, BAR_WIDTH = 50, LONGEST = 25 };

void bars_add(bars *picture, const char *group, const char *name, double value)
{
    if (picture->count == BARS_MOST) {
        picture->left_out++;
        return;
    }
    int i = picture->count++;
    snprintf(picture->bar[i].group, sizeof picture->bar[i].group, "%s", group);
    snprintf(picture->bar[i].name, sizeof picture->bar[i].name, "%s", name);
    picture->bar[i].value = value;
}

/* Eighths of a character, so that small bars differ too. */
static void print_bar(FILE *file, double part)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int length = (int)((part < 1 ? part : 1) * BAR_WIDTH * 8 + 0.5);
    length = length < 1 ? 1 : length;
    for (int i = 0; i < length / 8; i++)
        fputs("█", file);
    fputs(part > 1 ? "▶" : eighths[length % 8], file);
}

void bars_print(FILE *file, const char *prefix, const char *title, const bars *picture)
{
    double most = 0, least = picture->bar[0].value;
    for (int i = 0; i < picture->count; i++) {
        most = picture->bar[i].value > most ? picture->bar[i].value : most;
        least = picture->bar[i].value < least ? picture->bar[i].value : least;
    }
    int cut = most > LONGEST * least;
    most = cut ? LONGEST * least : most;
    fprintf(file, "%s%s\n", prefix, title);
    for (int i = 0; i < picture->count; i++) {
        fprintf(file, "%s%-*s %-*s ", prefix, GROUP_WIDTH, picture->bar[i].group, NAME_WIDTH,
                picture->bar[i].name);
        if (most > 0)
            print_bar(file, picture->bar[i].value / most);
        fprintf(file, " %.*f\n", picture->bar[i].value < 100 ? 1 : 0, picture->bar[i].value);
    }
    if (cut)
        fprintf(file, "%s▶ longer than the picture, which ends at %d times the shortest\n", prefix,
                LONGEST);
    if (picture->left_out)
        fprintf(file, "%s… and %d more\n", prefix, picture->left_out);
}
