// Sparse × dense with sums: out[v] = scale[v] · Σ weight[e] · scale[u] · x[u] over the edges of a row.
#include "spmm.h"

#include <atomic>
#include <memory>
#include <new>

#define WEFT_KERNELS "spmm_kernels.h"
#include "each_isa.h"

namespace weft {
namespace {

using portable::Acc;

template <class T, class I>
Status spmm(const Spmm& call, int threads) {
    threads = worth(threads, call.num_edges * (call.width + 8) + call.num_rows * call.width);
    const Plan plan = make_plan(call.indptr, call.num_rows);
    const std::unique_ptr<Acc<T>[]> parts(new Acc<T>[plan.pieces.size() * call.width]);
    const I* indices = static_cast<const I*>(call.indices);
    const I* edges = call.weight ? static_cast<const I*>(call.edges) : nullptr;
    std::atomic<bool> bad{false};
    const auto good = [&](int64_t begin, int64_t end) {
        const bool inside = WEFT_CALL(in_range, indices + begin, end - begin, call.num_src) &&
                            (!edges || WEFT_CALL(in_range, edges + begin, end - begin, call.num_edges));
        if (!inside) bad = true;
        return inside;
    };
    run_plan(
        plan, threads,
        [&](int64_t number, const Piece& piece) {
            if (good(piece.begin, piece.end))
                WEFT_CALL(sum_piece, T{}, I{}, call, piece, parts.get() + number * call.width);
        },
        [&](int64_t first, int64_t last) {
            if (good(call.indptr[first], call.indptr[last])) WEFT_CALL(sum_rows, T{}, I{}, call, first, last);
        });
    if (bad) return kBadIndex;
    run_hubs(plan, threads, [&](int64_t row, int64_t first, int64_t count) {
        WEFT_CALL(merge_pieces, T{}, call, row, parts.get() + first * call.width, count);
    });
    return kOk;
}

}  // namespace
}  // namespace weft

// x: [num_src, width]; out: [num_rows, width]; weight: [num_edges, heads]; the others: see Spmm.
// src_degrees: row pointers of the sources; each source row is divided by its number of edges there (the
// transpose of a mean). Null: it is not.
WEFT_API int weft_spmm(const int64_t* indptr, const void* indices, const void* edges, const void* x,
                       const void* weight, const void* src_scale, const void* dst_scale,
                       const int64_t* src_degrees, void* out, int64_t num_rows, int64_t num_src,
                       int64_t num_edges, int64_t width, int64_t heads, int mean, int dtype, int index,
                       int threads) {
    using namespace weft;
    if (bad_pointers(indptr, num_rows, num_edges)) return kBadPointers;
    if (num_rows == 0 || width == 0) return kOk;
    Spmm call{indptr, indices,  edges,   x,         weight, src_scale, dst_scale,
              out,    num_rows, num_src, num_edges, width,  heads,     mean != 0};
    return guarded([&](Status& status) {
        with_types(dtype, index, [&](auto value, auto place) {
            using A = Acc<decltype(value)>;
            std::unique_ptr<A[]> scale;
            if (src_degrees) {
                scale.reset(new A[num_src]);
                inverse_degrees(src_degrees, num_src, static_cast<const A*>(src_scale), scale.get());
                call.src_scale = scale.get();
            }
            status = spmm<decltype(value), decltype(place)>(call, threads);
        });
    });
}
