// Compiles the file named by WEFT_KERNELS once for each instruction set, in namespaces weft::avx512,
// weft::avx2 and weft::portable, where kVectorBytes is the width of its vectors. WEFT_CALL runs the form that
// the machine can.
//
// Such a file is written as plain templates over the short vectors of vector.h. It may not use code of the
// standard library: compiled for a newer processor, the linker might keep that copy for everybody.
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core.h"
#include "draw.h"

#ifndef WEFT_KERNELS
#error "define WEFT_KERNELS before including each_isa.h"
#endif

// Vectors wider than the portable set are only passed between inlined functions.
#pragma GCC diagnostic ignored "-Wpsabi"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WEFT_TARGETS 1
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,bmi,bmi2,lzcnt,popcnt")
namespace weft::avx512 {
constexpr int kVectorBytes = 64;
#include "vector.h"
#include WEFT_KERNELS
}  // namespace weft::avx512
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt")
namespace weft::avx2 {
constexpr int kVectorBytes = 32;
#include "vector.h"
#include WEFT_KERNELS
}  // namespace weft::avx2
#pragma GCC pop_options
#endif

namespace weft::portable {
constexpr int kVectorBytes = 16;
#include "vector.h"
#include WEFT_KERNELS
}  // namespace weft::portable

#ifdef WEFT_TARGETS
#define WEFT_CALL(function, ...)                          \
    (level() == 2   ? weft::avx512::function(__VA_ARGS__) \
     : level() == 1 ? weft::avx2::function(__VA_ARGS__)   \
                    : weft::portable::function(__VA_ARGS__))
#else
#define WEFT_CALL(function, ...) weft::portable::function(__VA_ARGS__)
#endif
