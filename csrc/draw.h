// Random numbers as a function of counters; the definition and the test vectors are in src/weft/draw.py.
#pragma once
#include <cstdint>
#include <initializer_list>

#include "core.h"

// Always inlined: kernels compiled for several instruction sets share them.
namespace weft {

constexpr uint64_t kGolden64 = 0x9E3779B97F4A7C15ull;
constexpr uint32_t kGolden32 = 0x9E3779B9u;

WEFT_INLINE uint64_t mix64(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
    return value ^ (value >> 31);
}

WEFT_INLINE uint32_t mix32(uint32_t value) {
    value = (value ^ (value >> 16)) * 0x21F0AAADu;
    value = (value ^ (value >> 15)) * 0x735A2D97u;
    return value ^ (value >> 15);
}

// The 64-bit key of one purpose at one moment of a run.
inline uint64_t fold(int64_t seed, int64_t stream, int64_t epoch, int64_t step, int64_t layer) {
    uint64_t key = 0;
    for (const int64_t value : {seed, stream, epoch, step, layer})
        key = mix64(key + kGolden64 * (static_cast<uint64_t>(value) + 1));
    return key;
}

// The 64 bits of one id; a draw is then two rounds of 32-bit mixing, which vectorises over lanes.
WEFT_INLINE uint64_t row_key(uint64_t key, int64_t id) {
    return mix64(key + kGolden64 * (static_cast<uint64_t>(id) + 1));
}

WEFT_INLINE uint32_t draw(uint64_t row, uint32_t lane) {
    return mix32(mix32(static_cast<uint32_t>(row) + kGolden32 * lane) ^ static_cast<uint32_t>(row >> 32));
}

}  // namespace weft
