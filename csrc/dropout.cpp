// Dropout by counter draws: an element is zeroed where the draw of its (id, lane) is below the threshold. The
// same call on the gradient is the backward, so no mask is kept.
#define WEFT_KERNELS "dropout_kernels.h"
#include "each_isa.h"

namespace weft {
namespace {

using portable::Acc;

constexpr int64_t kBlock = 1 << 14;

uint64_t clock_key(const int64_t* clock, int64_t stream, int64_t layer) {
    return fold(clock[0], stream, clock[1], clock[2], layer);
}

}  // namespace
}  // namespace weft

// x and out: [rows, width] and ids [rows], the columns being lanes; or, with lanes of type lane_index, each
// of them [rows]. clock: seed, epoch, step. threshold: 0 … 2^32.
WEFT_API int weft_dropout(const void* x, void* out, const int64_t* ids, const void* lanes, int lane_index,
                          int64_t rows, int64_t width, const int64_t* clock, int64_t stream, int64_t layer,
                          uint64_t threshold, double scale, int dtype, int threads) {
    using namespace weft;
    const uint64_t key = clock_key(clock, stream, layer);
    const bool all = threshold > 0xFFFFFFFFull;
    return guarded([&](Status& status) {
        const bool known = with_dtype(dtype, [&](auto value) {
            using T = decltype(value);
            const T* from = static_cast<const T*>(x);
            T* to = static_cast<T*>(out);
            const uint32_t below = static_cast<uint32_t>(threshold);
            const Acc<T> factor = static_cast<Acc<T>>(scale);
            const int64_t grain = 1 + kBlock / (width > 0 ? width : 1);
            parallel_blocks(worth(threads, rows * width * 4), rows, grain, [&](int64_t first, int64_t last) {
                if (all)
                    std::memset(static_cast<void*>(to + first * width), 0,
                                (last - first) * width * sizeof(T));
                else if (!lanes)
                    WEFT_CALL(drop_rows, from, to, ids, width, key, below, factor, first, last);
                else if (lane_index == kInt32)
                    WEFT_CALL(drop_values, from, to, ids, static_cast<const int32_t*>(lanes), key, below,
                              factor, first, last);
                else
                    WEFT_CALL(drop_values, from, to, ids, static_cast<const int64_t*>(lanes), key, below,
                              factor, first, last);
            });
        });
        if (known) status = kOk;
    });
}

// The draws of every (id, lane) themselves, [rows, width]: what the tests compare.
WEFT_API int weft_draw(const int64_t* ids, int64_t rows, int64_t width, const int64_t* clock, int64_t stream,
                       int64_t layer, uint32_t* out, int threads) {
    using namespace weft;
    const uint64_t key = clock_key(clock, stream, layer);
    return guarded([&](Status& status) {
        parallel_blocks(threads, rows, kBlock, [&](int64_t first, int64_t last) {
            WEFT_CALL(draw_rows, ids, width, key, out, first, last);
        });
        status = kOk;
    });
}
