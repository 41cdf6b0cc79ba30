/* Finding NCCL or RCCL: by dlopen() when it is first needed, so that a machine without it can use
 * everything else of this module. TREEATTN_CCL_LIBRARY names another file to open. A communicator
 * of the caller's belongs to the copy of the library that made it; another copy would read it as
 * something else, so for those none is opened that was not there before. */
#include "ccl.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/trust.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int opened;    /* or tried */
static int was_there; /* before this module opened it: somebody else has loaded it */
static ta_ccl_library found;
static char file[256];
static char why_not[512]; /* empty: it can be used */

/* ISO C knows no way from an object pointer to a function. */
static void *find(void *handle, const char *name, void *function, size_t bytes)
{
    void *address = dlsym(handle, name);
    memcpy(function, &address, bytes);
    return address;
}

static int has(int major, int minor)
{
    int needed = NCCL_VERSION(major, minor, 0);
    return NCCL_VERSION_CODE >= needed && found.version >= needed;
}

/* Which file to open: in a set-uid program always the usual one. A name without a directory is
 * looked for where the system has its libraries; another must be in a place to load code from. */
static const char *choose_file(void)
{
    char directory[sizeof file];
    const char *asked = secure_getenv("TREEATTN_CCL_LIBRARY");
    snprintf(file, sizeof file, "%s", asked && *asked ? asked : TA_CCL_FILE);
    char *slash = strrchr(strcpy(directory, file), '/');
    if (!slash)
        return NULL;
    slash[slash == directory] = '\0';
    return ta_untrusted(directory);
}

/* Has somebody loaded the file? Its name alone is looked for among what is loaded, also a program's
 * own copy in another directory, such as that of a Python package. */
static int is_loaded(void)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle)
        dlclose(handle);
    return handle != NULL;
}

static void open_library(void)
{
    const char *refused = choose_file();
    if (refused) {
        snprintf(why_not, sizeof why_not, "%s is not opened, for its directory: %s", file, refused);
        ta_gpu_core->log_info("%s", why_not);
        return;
    }
    was_there = is_loaded();
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(why_not, sizeof why_not, "%s", dlerror());
        return;
    }
#define FIND(name)                                                                                 \
    if (!find(handle, #name, (void *)&found.name, sizeof found.name)) {                            \
        snprintf(why_not, sizeof why_not, "%s has no function " #name, file);                      \
        return;                                                                                    \
    }
    TA_CCL_REQUIRED(FIND)
#undef FIND
    if (found.ncclGetVersion(&found.version) != ncclSuccess) {
        snprintf(why_not, sizeof why_not, "%s does not tell its version", file);
        return;
    }
#define FIND(name, major, minor)                                                                   \
    if (has(major, minor))                                                                         \
        find(handle, #name, (void *)&found.name, sizeof found.name);
    TA_CCL_OPTIONAL(FIND)
#undef FIND
}

static void open_once(void)
{
    pthread_mutex_lock(&mutex);
    if (!opened)
        open_library();
    opened = 1;
    pthread_mutex_unlock(&mutex);
}

ta_status ta_ccl_open(const ta_ccl_library **library)
{
    open_once();
    if (why_not[0])
        return ta_gpu_core->fail(TA_ERR_NOT_FOUND,
                                 TA_CCL_NAME " can't be used (" TA_CCL_FILE
                                             ", or what TREEATTN_CCL_LIBRARY says): %s",
                                 why_not);
    *library = &found;
    return TA_OK;
}

ta_status ta_ccl_open_callers(const ta_ccl_library **library)
{
    char name[sizeof file];
    pthread_mutex_lock(&mutex);
    int missing = !opened && !choose_file() && !is_loaded();
    memcpy(name, file, sizeof name);
    pthread_mutex_unlock(&mutex);
    if (missing)
        return ta_gpu_core->fail(TA_ERR_NOT_FOUND,
                                 "ccl.communicator is of a " TA_CCL_NAME " that can't be found: %s "
                                 "is not loaded, and another copy can't be given it "
                                 "(TREEATTN_CCL_LIBRARY names the file that is)",
                                 name);
    TA_TRY(ta_ccl_open(library));
    if (!was_there)
        return ta_gpu_core->fail(TA_ERR_NOT_FOUND,
                                 "ccl.communicator may be of another copy of " TA_CCL_NAME
                                 " than %s, which nobody had loaded when it was opened for "
                                 "something else: load the caller's before groups are made or "
                                 "ta_info() is asked",
                                 name);
    return TA_OK;
}

static const char *yes_no(int yes)
{
    return yes ? "yes" : "no";
}

void ta_ccl_describe(ta_text *text)
{
    open_once();
    if (why_not[0]) {
        ta_gpu_core->text_add(text, TA_VENDOR " collectives: none, %s\n", why_not);
        return;
    }
    ta_gpu_core->text_add(
        text, TA_VENDOR " collectives: " TA_CCL_NAME " %d.%d.%d in %s, header %d.%d.%d\n",
        found.version / 10000, found.version / 100 % 100, found.version % 100, file,
        NCCL_VERSION_CODE / 10000, NCCL_VERSION_CODE / 100 % 100, NCCL_VERSION_CODE % 100);
    void *handle = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    ta_gpu_core->text_add(text,
                          TA_VENDOR " collectives can: start without blocking %s, split %s, "
                                    "register %s (not used), shrink %s (not used)\n",
                          yes_no(found.ncclCommInitRankConfig != NULL),
                          found.ncclCommSplit ? "yes" : "no (by a new id)",
                          yes_no(handle && dlsym(handle, "ncclCommRegister")),
                          yes_no(handle && dlsym(handle, "ncclCommShrink")));
    if (handle)
        dlclose(handle);
}
