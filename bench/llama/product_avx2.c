/* The loops for AVX2, FMA and F16C: 16 registers of half the lanes; see product_loops.h. */
#define PRODUCT_NAME product_avx2
#define ROW_BLOCK 3
#define OUTPUT_BLOCK 2
#include "product_loops.h"
