// Rows as codes of few bits, rounded by counter draws, for what crosses the network. A coded row is its least
// value and its step (two floats), then the codes: two bytes, one byte, or 4 or 2 bits each.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")  // the same codes on every processor, fused multiply-add or not
#endif
#define WEFT_KERNELS "quantise_kernels.h"
#include "each_isa.h"

namespace weft {
namespace {

constexpr int64_t kGrain = 1 << 14;

int64_t coded_bytes(int64_t width, int bits) { return 8 + (width * bits + 7) / 8; }

bool known_bits(int bits) { return bits == 2 || bits == 4 || bits == 8 || bits == 16; }

// Room for the codes of a row: whole bytes in every plane, and zeros behind the last code.
std::vector<uint16_t> code_room(int64_t width) { return std::vector<uint16_t>(width + 4, 0); }

}  // namespace
}  // namespace weft

// x: [any, width]; row i of the message is row rows[i] of x (null: i), keyed by ids[i]. Codes are drawn as
// dropout masks are: clock is seed, epoch, step. out: [count, coded bytes of a row].
WEFT_API int weft_quantise(const void* x, const int64_t* rows, const int64_t* ids, int64_t count,
                           int64_t width, int bits, const int64_t* clock, int64_t stream, int64_t layer,
                           uint8_t* out, int dtype, int threads) {
    using namespace weft;
    const uint64_t key = fold(clock[0], stream, clock[1], clock[2], layer);
    return guarded([&](Status& status) {
        if (!known_bits(bits) || width < 1) return;
        const bool known = with_dtype(dtype, [&](auto value) {
            using T = decltype(value);
            const T* from = static_cast<const T*>(x);
            const int64_t size = coded_bytes(width, bits);
            parallel_blocks(worth(threads, count * width * 4), count, 1 + kGrain / width,
                            [&](int64_t first, int64_t last) {
                                std::vector<float> scratch(width);
                                std::vector<uint16_t> codes = code_room(width);
                                WEFT_CALL(encode_rows, from, rows, ids, width, bits, key, out, size,
                                          scratch.data(), codes.data(), first, last);
                            });
        });
        if (known) status = kOk;
    });
}

WEFT_API int weft_dequantise(const uint8_t* in, const int64_t* places, int64_t count, int64_t width, int bits,
                             void* out, int dtype, int threads) {
    using namespace weft;
    return guarded([&](Status& status) {
        if (!known_bits(bits) || width < 1) return;
        const bool known = with_dtype(dtype, [&](auto value) {
            using T = decltype(value);
            T* to = static_cast<T*>(out);
            const int64_t size = coded_bytes(width, bits);
            parallel_blocks(
                worth(threads, count * width), count, 1 + kGrain / width, [&](int64_t first, int64_t last) {
                    std::vector<uint16_t> codes = code_room(width);
                    WEFT_CALL(decode_rows, in, places, width, bits, to, size, codes.data(), first, last);
                });
        });
        if (known) status = kOk;
    });
}
