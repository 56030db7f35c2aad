// One value for every edge from the rows at its ends: dot products, or sums, differences and products by
// element.
#include "sddmm.h"

#include <atomic>
#include <memory>

#define WEFT_KERNELS "sddmm_kernels.h"
#include "each_isa.h"

namespace weft {
namespace {

using portable::Acc;

// Runs on_edges(row, begin, end) over all edges; false if an index is out of range. Edges are independent of
// each other, so a piece of a hub needs no merge.
template <class I, class OnEdges>
bool each_row(const Sddmm& call, int threads, const OnEdges& on_edges) {
    const int64_t width = call.heads * call.dim;
    threads = worth(threads, call.num_edges * (width + 8));
    const Plan plan = make_plan(call.indptr, call.num_rows);
    const I *indices = static_cast<const I*>(call.indices), *edges = static_cast<const I*>(call.edges);
    std::atomic<bool> bad{false};
    const auto good = [&](int64_t begin, int64_t end) {
        const bool inside = WEFT_CALL(in_range, indices + begin, end - begin, call.num_src) &&
                            (!edges || WEFT_CALL(in_range, edges + begin, end - begin, call.num_edges));
        if (!inside) bad = true;
        return inside;
    };
    run_plan(
        plan, threads,
        [&](int64_t, const Piece& piece) {
            if (good(piece.begin, piece.end)) on_edges(piece.row, piece.begin, piece.end);
        },
        [&](int64_t first, int64_t last) {
            if (!good(call.indptr[first], call.indptr[last])) return;
            for (int64_t row = first; row < last; ++row)
                if (call.indptr[row + 1] - call.indptr[row] <= kHub)
                    on_edges(row, call.indptr[row], call.indptr[row + 1]);
        });
    return !bad;
}

}  // namespace
}  // namespace weft

// a: [num_src, heads, dim]; b: [num_rows, heads, dim]; out: [num_edges, heads]; scales: see Sddmm.
// src_degrees: as for weft_spmm.
WEFT_API int weft_sddmm_dot(const int64_t* indptr, const void* indices, const void* edges, const void* a,
                            const void* b, const void* src_scale, const void* dst_scale,
                            const int64_t* src_degrees, void* out, int64_t num_rows, int64_t num_src,
                            int64_t num_edges, int64_t heads, int64_t dim, int mean, int dtype, int index,
                            int threads) {
    using namespace weft;
    if (bad_pointers(indptr, num_rows, num_edges)) return kBadPointers;
    Sddmm call{indptr, indices,  edges,   a,         b,     src_scale, dst_scale,
               out,    num_rows, num_src, num_edges, heads, dim,       mean != 0};
    return guarded([&](Status& status) {
        with_types(dtype, index, [&](auto value, auto place) {
            using A = Acc<decltype(value)>;
            std::unique_ptr<A[]> scale;
            if (src_degrees) {
                scale.reset(new A[num_src]);
                inverse_degrees(src_degrees, num_src, static_cast<const A*>(src_scale), scale.get());
                call.src_scale = scale.get();
            }
            const bool good =
                each_row<decltype(place)>(call, threads, [&](int64_t row, int64_t begin, int64_t end) {
                    WEFT_CALL(dot_edges, value, place, call, row, begin, end);
                });
            status = good ? kOk : kBadIndex;
        });
    });
}

// a: [num_src, width]; b: [num_rows, width]; out: [num_edges, width].
WEFT_API int weft_sddmm(const int64_t* indptr, const void* indices, const void* a, const void* b, void* out,
                        int op, int64_t num_rows, int64_t num_src, int64_t num_edges, int64_t width,
                        int dtype, int index, int threads) {
    using namespace weft;
    if (bad_pointers(indptr, num_rows, num_edges)) return kBadPointers;
    const Sddmm call{indptr, indices,  nullptr, a,         b, nullptr, nullptr,
                     out,    num_rows, num_src, num_edges, 1, width,   false};
    return guarded([&](Status& status) {
        with_types(dtype, index, [&](auto value, auto place) {
            const bool good =
                each_row<decltype(place)>(call, threads, [&](int64_t row, int64_t begin, int64_t end) {
                    WEFT_CALL(combine_edges, value, place, call, op, row, begin, end);
                });
            status = good ? kOk : kBadIndex;
        });
    });
}
