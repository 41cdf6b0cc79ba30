/* Is this file a whole shared object of this machine's kind? See module_file.h. What is looked at:
 * the header, the table of segments, that every segment is inside the file and where the others say
 * it is, the tables that the dynamic section names, and that the table of sections, which stands
 * last, is there. The contents of the segments are not: a file that was changed inside can only be
 * found out by running it. */
#include "module_file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#define MACHINE 0 /* the dynamic loader refuses another one, in its own words */
#endif

#define NATIVE_CLASS (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)
#define NATIVE_DATA (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB)

/* More than any linker makes; so everything fits on the stack. */
#define MOST_SEGMENTS 64
#define MOST_ENTRIES 256

typedef struct object {
    int file;
    uint64_t bytes;
    ElfW(Ehdr) header;
    ElfW(Phdr) segments[MOST_SEGMENTS];
} object;

/* Read exactly so much; 0 if the file has less. */
static int read_at(const object *o, uint64_t offset, void *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = pread(o->file, (char *)data + done, bytes - done, (off_t)(offset + done));
        if (got == 0 || (got < 0 && errno != EINTR))
            return 0;
        done += got > 0 ? (size_t)got : 0;
    }
    return 1;
}

static int is_inside(uint64_t first, uint64_t bytes, uint64_t end)
{
    return first <= end && bytes <= end - first;
}

static const char *check_header(object *o)
{
    const unsigned char *id = o->header.e_ident;
    if (!read_at(o, 0, &o->header, sizeof o->header))
        return "it is shorter than the header of a shared object";
    if (memcmp(id, ELFMAG, SELFMAG) != 0)
        return "it is no shared object: it does not begin with ELF";
    if (id[EI_CLASS] != NATIVE_CLASS || id[EI_DATA] != NATIVE_DATA ||
        (MACHINE && o->header.e_machine != MACHINE))
        return "it was built for another machine";
    if (o->header.e_type != ET_DYN)
        return "it is no shared object: its ELF type is another";
    if (o->header.e_phentsize != sizeof *o->segments || o->header.e_phnum < 1 ||
        o->header.e_phnum > MOST_SEGMENTS)
        return "its table of segments is damaged";
    if (!is_inside(o->header.e_phoff, o->header.e_phnum * sizeof *o->segments, o->bytes) ||
        !read_at(o, o->header.e_phoff, o->segments, o->header.e_phnum * sizeof *o->segments) ||
        !is_inside(o->header.e_shoff, (uint64_t)o->header.e_shnum * o->header.e_shentsize,
                   o->bytes))
        return "it is cut short: its tables are beyond its end";
    return NULL;
}

/* The loadable segment that holds these addresses, in the file or only in memory. */
static const ElfW(Phdr) *
    find_loaded(const object *o, uint64_t address, uint64_t bytes, int in_file)
{
    for (int i = 0; i < o->header.e_phnum; ++i) {
        const ElfW(Phdr) *s = &o->segments[i];
        uint64_t size = in_file ? s->p_filesz : s->p_memsz;
        if (s->p_type == PT_LOAD && address >= s->p_vaddr &&
            is_inside(address - s->p_vaddr, bytes, size))
            return s;
    }
    return NULL;
}

/* Inside the file, and one behind the other in memory. */
static const char *check_loaded(const object *o)
{
    uint64_t end = 0;
    int loaded = 0;
    for (int i = 0; i < o->header.e_phnum; ++i) {
        const ElfW(Phdr) *s = &o->segments[i];
        if (s->p_type != PT_LOAD)
            continue;
        if (!is_inside(s->p_offset, s->p_filesz, o->bytes))
            return "it is cut short: a segment is beyond its end";
        if (s->p_filesz > s->p_memsz || s->p_vaddr < end || s->p_memsz > PTRDIFF_MAX ||
            s->p_vaddr > PTRDIFF_MAX || (!loaded && !(s->p_flags & PF_R)))
            return "its table of segments is damaged";
        end = s->p_vaddr + s->p_memsz;
        loaded = 1;
    }
    return loaded ? NULL : "it has nothing to load";
}

/* The loader reads the other segments where they say that they are in memory. */
static const char *check_others(const object *o, const ElfW(Phdr) * *dynamic)
{
    for (int i = 0; i < o->header.e_phnum; ++i) {
        const ElfW(Phdr) *s = &o->segments[i];
        if (s->p_type == PT_LOAD || s->p_memsz == 0)
            continue;
        const ElfW(Phdr) *in = find_loaded(o, s->p_vaddr, s->p_memsz, 0);
        if (s->p_type == PT_TLS) /* only its first bytes are in memory */
            in = find_loaded(o, s->p_vaddr, s->p_filesz, 0);
        if (!in)
            return "its table of segments is damaged";
        if (s->p_type == PT_DYNAMIC && s->p_offset - in->p_offset == s->p_vaddr - in->p_vaddr &&
            s->p_filesz <= in->p_filesz)
            *dynamic = s;
    }
    return *dynamic ? NULL : "it has no dynamic section";
}

/* The tables without which the loader cannot look anything up. */
static const char *check_dynamic(const object *o, const ElfW(Phdr) * dynamic)
{
    ElfW(Dyn) entries[MOST_ENTRIES];
    size_t count = dynamic->p_filesz / sizeof *entries;
    uint64_t strings = 0, string_bytes = 0, symbols = 0;
    if (count > MOST_ENTRIES)
        count = MOST_ENTRIES;
    if (!read_at(o, dynamic->p_offset, entries, count * sizeof *entries))
        return "it is cut short: a segment is beyond its end";
    size_t i = 0;
    for (; i < count && entries[i].d_tag != DT_NULL; ++i) {
        strings = entries[i].d_tag == DT_STRTAB ? entries[i].d_un.d_ptr : strings;
        string_bytes = entries[i].d_tag == DT_STRSZ ? entries[i].d_un.d_val : string_bytes;
        symbols = entries[i].d_tag == DT_SYMTAB ? entries[i].d_un.d_ptr : symbols;
    }
    if (i == count || !strings || !string_bytes || !symbols ||
        !find_loaded(o, strings, string_bytes, 1) || !find_loaded(o, symbols, sizeof(ElfW(Sym)), 1))
        return "its dynamic section is damaged";
    return NULL;
}

static const char *check_object(object *o)
{
    const ElfW(Phdr) *dynamic = NULL;
    const char *wrong = check_header(o);
    if (!wrong)
        wrong = check_loaded(o);
    if (!wrong)
        wrong = check_others(o, &dynamic);
    return wrong ? wrong : check_dynamic(o, dynamic);
}

ta_module_file ta_module_file_check(const char *path, char *why, size_t capacity)
{
    struct stat about;
    object o = {.file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
    const char *wrong = NULL;
    if (o.file < 0 && (errno == ENOENT || errno == ENOTDIR))
        return TA_MODULE_FILE_ABSENT;
    if (o.file < 0 || fstat(o.file, &about) != 0) {
        snprintf(why, capacity, "it cannot be read: %s", strerror(errno));
        wrong = why;
    } else if (!S_ISREG(about.st_mode)) {
        wrong = "it is no regular file";
    } else if (about.st_mode & S_IWOTH) {
        wrong = "every user may write to it";
    } else {
        o.bytes = (uint64_t)about.st_size;
        wrong = check_object(&o);
    }
    if (o.file >= 0)
        close(o.file);
    if (wrong && wrong != why)
        snprintf(why, capacity, "%s", wrong);
    return wrong ? TA_MODULE_FILE_BAD : TA_MODULE_FILE_GOOD;
}
