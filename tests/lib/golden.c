/* See golden.h. */
#include "golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "unity.h"

static const char MARK[] = "=== ";

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    TEST_ASSERT_NOT_NULL_MESSAGE(file, path);
    size_t length = 0, capacity = 1 << 20;
    char *text = malloc(capacity);
    length = fread(text, 1, capacity - 1, file);
    TEST_ASSERT_TRUE_MESSAGE(feof(file), "larger than a megabyte");
    text[length] = '\0';
    fclose(file);
    return text;
}

void golden_open(golden *g, const char *file)
{
    const char *folder = getenv("TA_TEST_EXPLAIN");
    memset(g, 0, sizeof *g);
    snprintf(g->path, sizeof g->path, "%s/%s", folder ? folder : "tests/explain", file);
    if (!getenv("TA_GOLDEN_WRITE")) {
        g->kept = read_file(g->path);
        return;
    }
    g->written = fopen(g->path, "wb");
    TEST_ASSERT_NOT_NULL_MESSAGE(g->written, g->path);
}

/* The number at the start of a text: how many characters it has, 0 if there is none. */
static size_t number_at(const char *text, int *is_exact, double *number)
{
    size_t length = strspn(text, "0123456789.e+-");
    char copy[40];
    if (*text < '0' || *text > '9' || length >= sizeof copy)
        return 0;
    memcpy(copy, text, length);
    copy[length] = '\0';
    char *end;
    *number = strtod(copy, &end);
    length = (size_t)(end - copy);
    copy[length] = '\0';
    *is_exact = !strpbrk(copy, ".e");
    return length;
}

/* Where `text` stops being what is kept, up to `end`; NULL: nowhere. */
static const char *first_difference(const char *kept, const char *end, const char *text)
{
    while (kept < end || *text) {
        int kept_exact = 1, exact = 1;
        double kept_number = 0, number = 0;
        size_t kept_length = number_at(kept, &kept_exact, &kept_number);
        size_t length = number_at(text, &exact, &number);
        if (kept < end && kept_length && length && !kept_exact && !exact &&
            fabs(kept_number - number) <= 1e-6 * fabs(kept_number)) {
            kept += kept_length;
            text += length;
        } else if (kept == end || *kept != *text) {
            return text;
        } else {
            ++kept;
            ++text;
        }
    }
    return NULL;
}

static const char *find_section(const golden *g, const char *name)
{
    char line[200];
    snprintf(line, sizeof line, "%s%s\n", MARK, name);
    const char *at = g->kept;
    while ((at = strstr(at, line)) && at != g->kept && at[-1] != '\n')
        ++at;
    return at ? at + strlen(line) : NULL;
}

void golden_expect(golden *g, const char *name, const char *text)
{
    char message[1200];
    ++g->sections;
    if (g->written) {
        fprintf(g->written, "%s%s\n%s", MARK, name, text);
        return;
    }
    const char *section = find_section(g, name);
    snprintf(message, sizeof message, "%s has no section \"%s\"", g->path, name);
    TEST_ASSERT_NOT_NULL_MESSAGE(section, message);
    const char *end = strstr(section, "\n=== ");
    end = section[0] == '=' ? section : end ? end + 1 : section + strlen(section);
    const char *different = first_difference(section, end, text);
    if (!different)
        return;
    const char *line = different;
    while (line > text && line[-1] != '\n')
        --line;
    snprintf(message, sizeof message, "\"%s\" of %s is not as it was from \"%.60s\" on, in: %.400s",
             name, g->path, different, line);
    TEST_FAIL_MESSAGE(message);
}

int golden_hide(char *text, size_t number, char after)
{
    char digits[40];
    int length = snprintf(digits, sizeof digits, "%zu", number);
    char *at = strstr(text, digits);
    if (!at || at[length] != after)
        return 0;
    *at = 'N';
    memmove(at + 1, at + length, strlen(at + length) + 1);
    return 1;
}

void golden_close(golden *g)
{
    int kept = 0;
    if (g->written) {
        fclose(g->written);
        TEST_FAIL_MESSAGE("written: read the difference");
    }
    for (const char *at = g->kept; (at = strstr(at, MARK)); ++at)
        kept += at == g->kept || at[-1] == '\n';
    free(g->kept);
    TEST_ASSERT_EQUAL_INT_MESSAGE(kept, g->sections, g->path);
}
