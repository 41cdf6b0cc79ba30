/* See paired_locks.h. */
#include "paired_locks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static _Thread_local int held; /* mutexes of this thread */
static atomic_int wrong;

static int took(int error)
{
    held += error == 0;
    return error;
}

static void gives(void)
{
    atomic_fetch_add(&wrong, held == 0);
    held -= held > 0;
}

#ifdef INTERPOSE_LOCKS /* the dynamic linker takes these for the system's */
static void find(const char *name, void *function)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    memcpy(function, &symbol, sizeof symbol);
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*real)(pthread_mutex_t *);
    if (!real)
        find("pthread_mutex_lock", &real);
    return took(real(mutex));
}

int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    static int (*real)(pthread_mutex_t *);
    if (!real)
        find("pthread_mutex_trylock", &real);
    return took(real(mutex));
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *end)
{
    static int (*real)(pthread_mutex_t *, const struct timespec *);
    if (!real)
        find("pthread_mutex_timedlock", &real);
    return took(real(mutex, end));
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    static int (*real)(pthread_mutex_t *);
    if (!real)
        find("pthread_mutex_unlock", &real);
    gives();
    return real(mutex);
}
#else /* the linker puts these in the place of the functions */
#define WRAPPED(name, ...)                                                                         \
    int __real_pthread_##name(__VA_ARGS__);                                                        \
    int __wrap_pthread_##name(__VA_ARGS__);
WRAPPED(mutex_lock, pthread_mutex_t *mutex)
WRAPPED(mutex_unlock, pthread_mutex_t *mutex)
WRAPPED(cond_wait, pthread_cond_t *cond, pthread_mutex_t *mutex)
WRAPPED(cond_timedwait, pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *end)
#undef WRAPPED

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    return took(__real_pthread_mutex_lock(mutex));
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    gives();
    return __real_pthread_mutex_unlock(mutex);
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    atomic_fetch_add(&wrong, held == 0);
    return __real_pthread_cond_wait(cond, mutex);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *end)
{
    atomic_fetch_add(&wrong, held == 0);
    return __real_pthread_cond_timedwait(cond, mutex, end);
}
#endif

int paired_locks_wrong(void)
{
    return atomic_load(&wrong);
}
