// The attention kernels for any processor.
#include "attention.h"

#define WEFT_ISA portable
#define WEFT_VECTOR_BYTES 16
#include "attention_kernels.h"
