/* The loops for AVX-512: 24 of 32 registers are sums; see product_loops.h. */
#define PRODUCT_NAME product_avx512
#define ROW_BLOCK 6
#define OUTPUT_BLOCK 4
#include "product_loops.h"
