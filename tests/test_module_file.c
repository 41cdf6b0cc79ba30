/* Files in place of modules (src/device/module_file.c): cut short at many lengths, damaged headers,
 * other things under the name of a module. Each is opened in a child process by the public call,
 * which must return an error that names the file; the dynamic loader would end the process on
 * some. A module of tests/module/ is the whole one. */
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/expect.h"

static char scratch[] = "/tmp/test_module_file_XXXXXX", path[64];
static char *whole;
static size_t whole_bytes;

void setUp(void)
{
}

void tearDown(void)
{
    chmod(path, 0600);
    unlink(path);
}

static void write_module(const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    TEST_ASSERT_NOT_NULL(file);
    TEST_ASSERT_EQUAL_size_t(bytes, fwrite(data, 1, bytes, file));
    fclose(file);
}

static int says(ta_status status, const char *wanted)
{
    const char *said = ta_last_error();
    if (status == TA_ERR_NOT_FOUND && strstr(said, path) && strstr(said, wanted))
        return 1;
    printf("%s \"%s\", expected \"%s\"\n", ta_status_name(status), said, wanted);
    fflush(stdout);
    return 0;
}

/* Open the module in a process of its own; its error must have `wanted` in it. */
static void expect_error(const char *wanted, const char *what, size_t where)
{
    char text[160];
    int state = 0;
    fflush(stdout);
    pid_t child = fork();
    TEST_ASSERT_TRUE(child >= 0);
    if (child == 0) {
        ta_device *device = NULL;
        alarm(120);
        _exit(!says(ta_device_open("cuda:0", NULL, &device), wanted));
    }
    while (waitpid(child, &state, 0) != child)
        ;
    snprintf(text, sizeof text, "%s %zu: %s %d", what, where,
             WIFSIGNALED(state) ? "ended by signal" : "status",
             WIFSIGNALED(state) ? WTERMSIG(state) : WEXITSTATUS(state));
    TEST_ASSERT_TRUE_MESSAGE(WIFEXITED(state) && WEXITSTATUS(state) == 0, text);
}

static void test_the_whole_module_is_opened(void)
{
    write_module(whole, whole_bytes);
    expect_error("module interface 4242", "whole", 0);
}

static void test_every_cut(void)
{
    for (size_t bytes = 0; bytes < whole_bytes; bytes += 1 + whole_bytes / 150) {
        write_module(whole, bytes);
        expect_error(bytes < sizeof(ElfW(Ehdr)) ? "shorter than the header" : "cut short", "cut to",
                     bytes);
    }
    write_module(whole, whole_bytes - 1);
    expect_error("cut short", "cut to", whole_bytes - 1);
}

/* A copy whose header is changed by `change`. */
static void expect_refused_header(const char *wanted, void (*change)(ElfW(Ehdr) *))
{
    char *copy = malloc(whole_bytes);
    memcpy(copy, whole, whole_bytes);
    ElfW(Ehdr) header;
    memcpy(&header, copy, sizeof header);
    change(&header);
    memcpy(copy, &header, sizeof header);
    write_module(copy, whole_bytes);
    free(copy);
    expect_error(wanted, wanted, 0);
}

static void to_another_class(ElfW(Ehdr) * header)
{
    header->e_ident[EI_CLASS] ^= ELFCLASS32 ^ ELFCLASS64;
}

static void to_another_machine(ElfW(Ehdr) * header)
{
    header->e_machine = EM_S390;
}

static void to_a_program(ElfW(Ehdr) * header)
{
    header->e_type = ET_EXEC;
}

static void to_many_segments(ElfW(Ehdr) * header)
{
    header->e_phnum = 0xffff;
}

static void to_no_segments(ElfW(Ehdr) * header)
{
    header->e_phnum = 0;
}

static void to_one_segment(ElfW(Ehdr) * header)
{
    header->e_phnum = 1;
}

static void to_far_segments(ElfW(Ehdr) * header)
{
    header->e_phoff = ~(ElfW(Off))7;
}

static void test_headers(void)
{
    ElfW(Ehdr) header;
    ElfW(Phdr) first;
    memcpy(&header, whole, sizeof header);
    memcpy(&first, whole + header.e_phoff, sizeof first);
    expect_refused_header("another machine", to_another_class);
#if defined(__x86_64__) || defined(__aarch64__)
    expect_refused_header("another machine", to_another_machine);
#endif
    expect_refused_header("ELF type", to_a_program);
    expect_refused_header("table of segments", to_many_segments);
    expect_refused_header("table of segments", to_no_segments);
    expect_refused_header(first.p_type == PT_LOAD ? "no dynamic section" : "nothing to load",
                          to_one_segment);
    expect_refused_header("cut short", to_far_segments);
}

/* The module with so many segments: a new table behind its end, whose other entries are empty, but
 * for the last one. */
static void write_segments(int count, const ElfW(Phdr) * last)
{
    ElfW(Ehdr) header;
    memcpy(&header, whole, sizeof header);
    size_t at = (whole_bytes + 15) / 16 * 16;
    size_t table = (size_t)count * sizeof(ElfW(Phdr));
    char *copy = calloc(1, at + table);
    memcpy(copy, whole, whole_bytes);
    memcpy(copy + at, whole + header.e_phoff, header.e_phnum * sizeof(ElfW(Phdr)));
    memcpy(copy + at + table - sizeof *last, last, sizeof *last);
    header.e_phoff = at;
    header.e_phnum = (ElfW(Half))count;
    memcpy(copy, &header, sizeof header);
    write_module(copy, at + table);
    free(copy);
}

static void test_the_most_segments(void)
{
    const ElfW(Phdr) empty = {0};
    write_segments(64, &empty);
    expect_error("module interface 4242", "segments", 64);
    write_segments(65, &empty);
    expect_error("table of segments", "segments", 65);
}

/* Variables of threads that begin as 0 are in no segment that is loaded. */
static void test_variables_of_threads(void)
{
    const ElfW(Phdr) first = {.p_type = PT_TLS, .p_memsz = (ElfW(Off))1 << 30, .p_align = 1};
    write_segments(32, &first);
    expect_error("module interface 4242", "segments", 32);
}

/* The module with its dynamic section first in the table of segments, or as it is; and maybe with a
 * first segment to load that nobody may read. */
static void write_first(int dynamic_first, int unreadable)
{
    ElfW(Ehdr) header;
    memcpy(&header, whole, sizeof header);
    ElfW(Phdr) segments[64], first;
    size_t bytes = header.e_phnum * sizeof *segments;
    memcpy(segments, whole + header.e_phoff, bytes);
    int dynamic = 0;
    while (dynamic < header.e_phnum && segments[dynamic].p_type != PT_DYNAMIC)
        ++dynamic;
    TEST_ASSERT_TRUE(dynamic > 0 && dynamic < header.e_phnum);
    first = segments[dynamic];
    if (dynamic_first) {
        memmove(segments + 1, segments, (size_t)dynamic * sizeof *segments);
        segments[0] = first;
    }
    int load = 0;
    while (load < header.e_phnum && segments[load].p_type != PT_LOAD)
        ++load;
    TEST_ASSERT_TRUE(load == dynamic_first && (segments[load].p_flags & PF_R));
    if (unreadable)
        segments[load].p_flags &= ~(ElfW(Word))PF_R;
    char *copy = malloc(whole_bytes);
    memcpy(copy, whole, whole_bytes);
    memcpy(copy + header.e_phoff, segments, bytes);
    write_module(copy, whole_bytes);
    free(copy);
}

/* The table may begin with the dynamic section: the loader goes by types, and so does the check. */
static void test_the_dynamic_section_first(void)
{
    write_first(1, 0);
    expect_error("module interface 4242", "dynamic section", 0);
}

/* The first segment that is loaded has the header, which the loader reads: whatever stands before
 * it in the table. */
static void test_the_first_segment_must_be_readable(void)
{
    for (int dynamic_first = 0; dynamic_first < 2; ++dynamic_first) {
        write_first(dynamic_first, 1);
        expect_error("table of segments is damaged", "unreadable", (size_t)dynamic_first);
    }
}

/* Fill a field with a byte, in turn for each segment that the loader needs. */
static void damage_segments(size_t field, size_t field_bytes, int byte)
{
    ElfW(Ehdr) header;
    memcpy(&header, whole, sizeof header);
    for (int i = 0; i < header.e_phnum; ++i) {
        size_t at = header.e_phoff + (size_t)i * header.e_phentsize;
        ElfW(Phdr) segment;
        memcpy(&segment, whole + at, sizeof segment);
        if (segment.p_type != PT_LOAD && segment.p_type != PT_DYNAMIC)
            continue;
        char *copy = malloc(whole_bytes);
        memcpy(copy, whole, whole_bytes);
        memset(copy + at + field, byte, field_bytes);
        write_module(copy, whole_bytes);
        free(copy);
        expect_error("", "damaged segment", (size_t)i);
    }
}

static void test_damaged_segments(void)
{
    damage_segments(offsetof(ElfW(Phdr), p_offset), sizeof(ElfW(Off)), 0x77);
    damage_segments(offsetof(ElfW(Phdr), p_filesz), sizeof(ElfW(Off)), 0xff);
    damage_segments(offsetof(ElfW(Phdr), p_memsz), sizeof(ElfW(Off)), 0xff);
    damage_segments(offsetof(ElfW(Phdr), p_vaddr), sizeof(ElfW(Off)), 0x77);
}

static void test_a_damaged_dynamic_section(void)
{
    ElfW(Ehdr) header;
    memcpy(&header, whole, sizeof header);
    for (int byte = 0; byte < 256; byte += 85)
        for (int i = 0; i < header.e_phnum; ++i) {
            ElfW(Phdr) segment;
            memcpy(&segment, whole + header.e_phoff + (size_t)i * header.e_phentsize,
                   sizeof segment);
            if (segment.p_type != PT_DYNAMIC)
                continue;
            char *copy = malloc(whole_bytes);
            memcpy(copy, whole, whole_bytes);
            memset(copy + segment.p_offset, byte, segment.p_filesz);
            write_module(copy, whole_bytes);
            free(copy);
            expect_error("dynamic section", "dynamic section of", (size_t)byte);
        }
}

/* The module with one entry of its dynamic section turned into one that nobody knows. */
static void write_without(ElfW(Sxword) tag)
{
    ElfW(Ehdr) header;
    memcpy(&header, whole, sizeof header);
    char *copy = malloc(whole_bytes);
    memcpy(copy, whole, whole_bytes);
    int found = 0;
    for (int i = 0; i < header.e_phnum; ++i) {
        ElfW(Phdr) segment;
        memcpy(&segment, whole + header.e_phoff + (size_t)i * header.e_phentsize, sizeof segment);
        if (segment.p_type != PT_DYNAMIC)
            continue;
        for (size_t at = 0; at < segment.p_filesz; at += sizeof(ElfW(Dyn))) {
            ElfW(Dyn) entry;
            memcpy(&entry, copy + segment.p_offset + at, sizeof entry);
            found += entry.d_tag == tag;
            if (entry.d_tag == tag)
                entry.d_tag = DT_DEBUG;
            memcpy(copy + segment.p_offset + at, &entry, sizeof entry);
        }
    }
    write_module(copy, whole_bytes);
    free(copy);
    TEST_ASSERT_EQUAL_INT(1, found);
}

/* Address 0 is in the first segment, so a table that is missing is not found by its place. */
static void test_a_table_is_missing(void)
{
    static const int tables[] = {DT_STRTAB, DT_STRSZ, DT_SYMTAB};
    for (int i = 0; i < 3; ++i) {
        write_without(tables[i]);
        expect_error("dynamic section is damaged", "without entry", (size_t)tables[i]);
    }
}

/* The module with this entry first in its dynamic section, in the place of what was. */
static void write_entry_first(ElfW(Sxword) tag)
{
    ElfW(Ehdr) header;
    ElfW(Phdr) segment = {0};
    ElfW(Dyn) entry, first;
    memcpy(&header, whole, sizeof header);
    for (size_t i = 0; segment.p_type != PT_DYNAMIC && i < header.e_phnum; ++i)
        memcpy(&segment, whole + header.e_phoff + i * sizeof segment, sizeof segment);
    char *copy = malloc(whole_bytes), *entries = copy + segment.p_offset, *at = entries;
    memcpy(copy, whole, whole_bytes);
    memcpy(&first, entries, sizeof first);
    do
        memcpy(&entry, at, sizeof entry);
    while (entry.d_tag != tag && (at += sizeof entry) < entries + segment.p_filesz);
    TEST_ASSERT_TRUE(entry.d_tag == tag && at > entries);
    memcpy(at, &first, sizeof first);
    memcpy(entries, &entry, sizeof entry);
    write_module(copy, whole_bytes);
    free(copy);
}

/* Entries are in any order. */
static void test_each_table_first(void)
{
    static const int tables[] = {DT_STRTAB, DT_STRSZ, DT_SYMTAB};
    for (int i = 0; i < 3; ++i) {
        write_entry_first(tables[i]);
        expect_error("module interface 4242", "first entry", (size_t)tables[i]);
    }
}

/* The module with a table at another address, and a last segment that is longer in memory than in
 * the file. */
static void write_moved(ElfW(Sxword) tag, int in_memory, int64_t past)
{
    ElfW(Ehdr) header;
    memcpy(&header, whole, sizeof header);
    char *copy = malloc(whole_bytes);
    memcpy(copy, whole, whole_bytes);
    ElfW(Phdr) segments[64], *last = NULL;
    size_t bytes = header.e_phnum * sizeof *segments;
    memcpy(segments, whole + header.e_phoff, bytes);
    for (int i = 0; i < header.e_phnum; ++i)
        last = segments[i].p_type == PT_LOAD ? &segments[i] : last;
    last->p_memsz = last->p_filesz + 4096;
    memcpy(copy + header.e_phoff, segments, bytes);
    uint64_t end = last->p_vaddr + (in_memory ? last->p_memsz : last->p_filesz);
    for (int i = 0; i < header.e_phnum; ++i)
        for (size_t at = 0; segments[i].p_type == PT_DYNAMIC && at < segments[i].p_filesz;
             at += sizeof(ElfW(Dyn))) {
            ElfW(Dyn) entry;
            memcpy(&entry, copy + segments[i].p_offset + at, sizeof entry);
            if (entry.d_tag == tag)
                entry.d_un.d_ptr = end + (uint64_t)past;
            memcpy(copy + segments[i].p_offset + at, &entry, sizeof entry);
        }
    write_module(copy, whole_bytes);
    free(copy);
}

/* The loader would read them: they must be in the file, whole. */
static void test_a_table_is_elsewhere(void)
{
    static const int tables[] = {DT_STRTAB, DT_SYMTAB};
    for (int i = 0; i < 2; ++i) {
        write_moved(tables[i], 0, -1); /* the last byte of the file's part */
        expect_error("dynamic section is damaged", "at the end: entry", (size_t)tables[i]);
        write_moved(tables[i], 0, 8); /* in memory alone */
        expect_error("dynamic section is damaged", "in memory: entry", (size_t)tables[i]);
        write_moved(tables[i], 1, 8);
        expect_error("dynamic section is damaged", "beyond: entry", (size_t)tables[i]);
    }
}

static void test_what_is_no_module(void)
{
    static const char text[4096] = "#!/bin/sh\n";
    write_module(text, sizeof text);
    expect_error("does not begin with ELF", "text", 0);
    unlink(path);
    TEST_ASSERT_EQUAL_INT(0, mkfifo(path, 0600));
    expect_error("no regular file", "pipe", 0);
    unlink(path);
    TEST_ASSERT_EQUAL_INT(0, mkdir(path, 0700));
    expect_error("no regular file", "directory", 0);
    rmdir(path);
    TEST_ASSERT_EQUAL_INT(0, symlink("/dev/zero", path));
    expect_error("no regular file", "device", 0);
    unlink(path);
    TEST_ASSERT_EQUAL_INT(0, symlink(path, path)); /* which nobody can follow */
    expect_error("it cannot be read: ", "link", 0);
    unlink(path);
    write_module(whole, whole_bytes);
    chmod(path, 0666);
    expect_error("every user may write to it", "mode", 0666);
}

static int read_whole(const char *from)
{
    struct stat about;
    FILE *file = fopen(from, "rb");
    if (!file || fstat(fileno(file), &about) != 0)
        return 0;
    whole_bytes = (size_t)about.st_size;
    whole = malloc(whole_bytes);
    size_t got = fread(whole, 1, whole_bytes, file);
    fclose(file);
    return got == whole_bytes;
}

int main(void)
{
    char from[4096];
    const char *modules = getenv("TREEATTN_MODULE_PATH");
    if (!modules)
        return 77; /* it is `meson test` that says where the files are */
    snprintf(from, sizeof from, "%s/treeattn-cuda.so", modules);
    if (!mkdtemp(scratch) || !read_whole(from))
        return 1;
    snprintf(path, sizeof path, "%s/treeattn-cuda.so", scratch);
    setenv("TREEATTN_MODULE_PATH", scratch, 1);
    UNITY_BEGIN();
    RUN_TEST(test_the_whole_module_is_opened);
    RUN_TEST(test_every_cut);
    RUN_TEST(test_headers);
    RUN_TEST(test_the_most_segments);
    RUN_TEST(test_variables_of_threads);
    RUN_TEST(test_the_dynamic_section_first);
    RUN_TEST(test_the_first_segment_must_be_readable);
    RUN_TEST(test_damaged_segments);
    RUN_TEST(test_a_damaged_dynamic_section);
    RUN_TEST(test_a_table_is_missing);
    RUN_TEST(test_each_table_first);
    RUN_TEST(test_a_table_is_elsewhere);
    RUN_TEST(test_what_is_no_module);
    free(whole);
    rmdir(scratch);
    return UNITY_END() != 0;
}
