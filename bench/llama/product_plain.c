/* The loops for any CPU; see product_loops.h. */
#define PRODUCT_NAME product_plain
#define ROW_BLOCK 2
#define OUTPUT_BLOCK 2
#include "product_loops.h"
