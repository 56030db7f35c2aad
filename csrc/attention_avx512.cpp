// The attention kernels for processors with AVX-512.
#include "attention.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(                                                                              \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,bmi,bmi2,lzcnt,popcnt"))), \
    apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,bmi,bmi2,lzcnt,popcnt")
#endif
#define WEFT_ISA avx512
#define WEFT_VECTOR_BYTES 64
#include "attention_kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
