/* How to spell a small function in a header that both C and HIP code include. HIP code defines
 * TA_INLINE with its own qualifiers before it includes such a header. */
#ifndef TA_INLINE
#define TA_INLINE static inline
#endif
