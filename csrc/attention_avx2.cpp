// The attention kernels for processors with AVX2.
#include "attention.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,bmi,bmi2,lzcnt,popcnt"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt")
#endif
#define WEFT_ISA avx2
#define WEFT_VECTOR_BYTES 32
#include "attention_kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
