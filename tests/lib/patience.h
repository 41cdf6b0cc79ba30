/* How long ranks wait for each other in tests that are not about waiting. TSan makes the kernels on
 * the executor up to 70 times slower: a rank that computes is not to be taken for one that is
 * lost. */
#ifndef TESTS_PATIENCE_H
#define TESTS_PATIENCE_H

#if defined(__SANITIZE_THREAD__)
#define PATIENCE_FACTOR 20
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PATIENCE_FACTOR 20
#endif
#endif
#ifndef PATIENCE_FACTOR
#define PATIENCE_FACTOR 1
#endif

#define PATIENCE_MS(milliseconds) (PATIENCE_FACTOR * (milliseconds))

/* Where everybody comes: so long that it is over only if somebody never will, however busy the
 * machine is. It costs nothing, and is shorter than Meson waits, so that the rank is named. */
#define LONG_WAIT_MS (PATIENCE_FACTOR > 1 ? 400000 : 120000)

#endif
