// A number of all bytes of an array, to notice that somebody wrote to it: its 64-bit words are the
// coefficients of a polynomial modulo 2^64. The base is odd, so one word that changes always changes it.
#include <cstring>

#include "core.h"
#include "draw.h"

namespace weft {
namespace {

constexpr int64_t kBlock = 8192;  // words
constexpr int64_t kLanes = 8;     // sums at once: one alone would wait for its multiplications

uint64_t power(uint64_t base, int64_t exponent) {
    uint64_t found = 1;
    for (; exponent > 0; exponent >>= 1, base *= base)
        if (exponent & 1) found *= base;
    return found;
}

uint64_t word(const char* data, int64_t bytes) {
    uint64_t found = 0;
    std::memcpy(&found, data, bytes < 8 ? bytes : 8);
    return found;
}

// The polynomial of the words that `bytes` bytes hold; the last may be a part of one.
uint64_t of_block(const char* data, int64_t bytes) {
    const uint64_t stride = power(kGolden64, kLanes);
    const int64_t whole = bytes / (8 * kLanes);
    uint64_t sums[kLanes] = {};
    for (int64_t i = 0; i < whole; ++i)
        for (int64_t lane = 0; lane < kLanes; ++lane)
            sums[lane] = sums[lane] * stride + word(data + 8 * (i * kLanes + lane), 8);
    uint64_t found = 0;
    for (int64_t lane = 0; lane < kLanes; ++lane) found = found * kGolden64 + sums[lane];
    for (int64_t at = 8 * kLanes * whole; at < bytes; at += 8)
        found = found * kGolden64 + word(data + at, bytes - at);
    return found;
}

}  // namespace
}  // namespace weft

WEFT_API int weft_fingerprint(const void* data, int64_t bytes, uint64_t* number, int threads) {
    using namespace weft;
    return guarded([&](Status& status) {
        const char* from = static_cast<const char*>(data);
        const int64_t words = (bytes + 7) / 8, blocks = (words + kBlock - 1) / kBlock;
        std::vector<uint64_t> found(blocks);
        parallel(worth(threads, words), blocks, [&](int64_t block) {
            const int64_t begin = 8 * kBlock * block, left = bytes - begin;
            found[block] = of_block(from + begin, left < 8 * kBlock ? left : 8 * kBlock);
        });
        const uint64_t full = power(kGolden64, kBlock);
        uint64_t whole = 0;
        for (int64_t block = 0; block < blocks; ++block) {
            const int64_t left = words - block * kBlock;
            whole = whole * (left < kBlock ? power(kGolden64, left) : full) + found[block];
        }
        *number = whole;
        status = kOk;
    });
}
