// The largest or smallest value over the edges of a row, the number of edges that attain it, and the
// gradient: each row's gradient is shared equally among those edges.
#include "extreme.h"

#include <atomic>
#include <memory>
#include <new>

#define WEFT_KERNELS "extreme_kernels.h"
#include "each_isa.h"

namespace weft {
namespace {

using portable::Acc;

template <class I>
struct Checked {
    const I* indices;
    int64_t bound;
    std::atomic<bool> bad{false};
    bool operator()(int64_t begin, int64_t end) {
        const bool inside = WEFT_CALL(in_range, indices + begin, end - begin, bound);
        if (!inside) bad = true;
        return inside;
    }
};

template <class T, class I>
Status extreme(const Extreme& call, bool maximum, int threads) {
    threads = worth(threads, call.num_edges * (call.width + 8) + call.num_rows * call.width);
    const Plan plan = make_plan(call.indptr, call.num_rows);
    const std::unique_ptr<T[]> values(new T[plan.pieces.size() * call.width]);
    const std::unique_ptr<int32_t[]> counts(new int32_t[plan.pieces.size() * call.width]);
    Checked<I> good{static_cast<const I*>(call.indices), call.num_src};
    run_plan(
        plan, threads,
        [&](int64_t number, const Piece& piece) {
            const int64_t at = number * call.width;
            if (good(piece.begin, piece.end))
                WEFT_CALL(extreme_piece, static_cast<T*>(nullptr), I{}, call, maximum, piece,
                          values.get() + at, counts.get() + at);
        },
        [&](int64_t first, int64_t last) {
            if (good(call.indptr[first], call.indptr[last]))
                WEFT_CALL(extreme_rows, T{}, I{}, call, maximum, first, last);
        });
    if (good.bad) return kBadIndex;
    run_hubs(plan, threads, [&](int64_t row, int64_t first, int64_t count) {
        WEFT_CALL(extreme_merge, call, maximum, row, values.get() + first * call.width,
                  counts.get() + first * call.width, count);
    });
    return kOk;
}

template <class T, class I>
Status extreme_backward(ExtremeBackward& call, const T* grad, const int32_t* count, int threads) {
    threads = worth(threads, call.num_edges * (2 * call.width + 8) + call.num_rows * call.width);
    const int64_t size = call.num_dst * call.width;
    const std::unique_ptr<Acc<T>[]> share(new Acc<T>[size]);
    parallel_blocks(threads, size, 1 << 16, [&](int64_t begin, int64_t end) {
        WEFT_CALL(share_rows, grad, count, share.get(), begin, end);
    });
    call.share = share.get();
    const Plan plan = make_plan(call.indptr, call.num_rows);
    const std::unique_ptr<Acc<T>[]> parts(new Acc<T>[plan.pieces.size() * call.width]);
    Checked<I> good{static_cast<const I*>(call.indices), call.num_dst};
    T* out = static_cast<T*>(call.out);
    run_plan(
        plan, threads,
        [&](int64_t number, const Piece& piece) {
            if (good(piece.begin, piece.end))
                WEFT_CALL(shares_edges, out, I{}, call, piece.row, piece.begin, piece.end,
                          parts.get() + number * call.width);
        },
        [&](int64_t first, int64_t last) {
            if (good(call.indptr[first], call.indptr[last]))
                WEFT_CALL(shares_rows, out, I{}, call, first, last);
        });
    if (good.bad) return kBadIndex;
    run_hubs(plan, threads, [&](int64_t row, int64_t first, int64_t num_parts) {
        WEFT_CALL(shares_merge, out + row * call.width, parts.get() + first * call.width, call.width,
                  num_parts);
    });
    return kOk;
}

}  // namespace
}  // namespace weft

// x: [num_src, width]; value and count: [num_rows, width], out. See Extreme.
WEFT_API int weft_extreme(const int64_t* indptr, const void* indices, const void* x, void* value,
                          int32_t* count, int64_t num_rows, int64_t num_src, int64_t num_edges, int64_t width,
                          int maximum, int dtype, int index, int threads) {
    using namespace weft;
    if (bad_pointers(indptr, num_rows, num_edges)) return kBadPointers;
    if (num_rows == 0 || width == 0) return kOk;
    const Extreme call{indptr, indices, x, value, count, num_rows, num_src, num_edges, width};
    return guarded([&](Status& status) {
        with_types(dtype, index, [&](auto value_type, auto place) {
            status = extreme<decltype(value_type), decltype(place)>(call, maximum != 0, threads);
        });
    });
}

// On the transposed CSR: x and out are [num_rows, width], value, count and grad [num_dst, width].
WEFT_API int weft_extreme_backward(const int64_t* indptr, const void* indices, const void* x,
                                   const void* value, const int32_t* count, const void* grad, void* out,
                                   int64_t num_rows, int64_t num_dst, int64_t num_edges, int64_t width,
                                   int dtype, int index, int threads) {
    using namespace weft;
    if (bad_pointers(indptr, num_rows, num_edges)) return kBadPointers;
    if (num_rows == 0 || width == 0) return kOk;
    ExtremeBackward call{indptr, indices, x, value, nullptr, out, num_rows, num_dst, num_edges, width};
    return guarded([&](Status& status) {
        with_types(dtype, index, [&](auto value_type, auto place) {
            using T = decltype(value_type);
            status = extreme_backward<T, decltype(place)>(call, static_cast<const T*>(grad), count, threads);
        });
    });
}
