// What every file of the native core shares: exported symbols and the threads to use.
#pragma once
#include <cstddef>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

#define WEFT_API extern "C" __attribute__((visibility("default")))
