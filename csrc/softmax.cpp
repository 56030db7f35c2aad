// Softmax over the edges of each row, and its gradient. The parts of a hub row are reduced one by one and
// merged in their order, then written part by part.
#define WEFT_KERNELS "softmax_kernels.h"
#include "each_isa.h"

namespace weft {
namespace {

constexpr int64_t kHeads = portable::kHeads;

// Runs on_heads(first head, number of heads) over at most kHeads heads at a time.
template <class OnHeads>
void each_heads(int64_t heads, const OnHeads& on_heads) {
    for (int64_t head = 0; head < heads; head += kHeads)
        on_heads(head, heads - head < kHeads ? heads - head : kHeads);
}

template <class T>
void hub_softmax(const Plan& plan, const T* scores, T* out, int64_t heads, int threads) {
    const int64_t num_pieces = static_cast<int64_t>(plan.pieces.size());
    std::vector<T> tops(num_pieces * heads), sums(num_pieces * heads);
    const auto each_piece = [&](const auto& on_part) {
        parallel(threads, num_pieces, [&](int64_t number) {
            const Piece& piece = plan.pieces[number];
            each_heads(heads, [&](int64_t head, int64_t some) {
                on_part(piece.begin * heads + head, piece.end - piece.begin, some, number * heads + head);
            });
        });
    };
    each_piece([&](int64_t at, int64_t count, int64_t some, int64_t slot) {
        WEFT_CALL(softmax_max, scores + at, count, some, heads, &tops[slot]);
    });
    run_hubs(plan, 1, [&](int64_t, int64_t first, int64_t count) {
        for (int64_t head = 0; head < heads; ++head) {
            T top = tops[first * heads + head];
            for (int64_t part = 1; part < count; ++part) {
                const T other = tops[(first + part) * heads + head];
                top = other > top || other != other ? other : top;
            }
            for (int64_t part = 0; part < count; ++part) tops[(first + part) * heads + head] = top;
        }
    });
    each_piece([&](int64_t at, int64_t count, int64_t some, int64_t slot) {
        WEFT_CALL(softmax_exp, scores + at, out + at, count, some, heads, &tops[slot], &sums[slot]);
    });
    run_hubs(plan, 1, [&](int64_t, int64_t first, int64_t count) {
        for (int64_t head = 0; head < heads; ++head) {
            T sum = 0;
            for (int64_t part = 0; part < count; ++part) sum += sums[(first + part) * heads + head];
            for (int64_t part = 0; part < count; ++part) sums[(first + part) * heads + head] = sum;
        }
    });
    each_piece([&](int64_t at, int64_t count, int64_t some, int64_t slot) {
        WEFT_CALL(softmax_scale, out + at, count, some, heads, &sums[slot]);
    });
}

template <class T>
void hub_gradient(const Plan& plan, const T* out, const T* grad, T* to, int64_t heads, int threads) {
    const int64_t num_pieces = static_cast<int64_t>(plan.pieces.size());
    std::vector<T> sums(num_pieces * heads);
    const auto each_piece = [&](const auto& on_part) {
        parallel(threads, num_pieces, [&](int64_t number) {
            const Piece& piece = plan.pieces[number];
            each_heads(heads, [&](int64_t head, int64_t some) {
                on_part(piece.begin * heads + head, piece.end - piece.begin, some, number * heads + head);
            });
        });
    };
    each_piece([&](int64_t at, int64_t count, int64_t some, int64_t slot) {
        WEFT_CALL(softmax_dot, out + at, grad + at, count, some, heads, &sums[slot]);
    });
    run_hubs(plan, 1, [&](int64_t, int64_t first, int64_t count) {
        for (int64_t head = 0; head < heads; ++head) {
            T sum = 0;
            for (int64_t part = 0; part < count; ++part) sum += sums[(first + part) * heads + head];
            for (int64_t part = 0; part < count; ++part) sums[(first + part) * heads + head] = sum;
        }
    });
    each_piece([&](int64_t at, int64_t count, int64_t some, int64_t slot) {
        WEFT_CALL(softmax_grad, out + at, grad + at, to + at, count, some, heads, &sums[slot]);
    });
}

template <class T>
void softmax(const int64_t* indptr, int64_t num_rows, const T* scores, T* out, int64_t heads, int threads) {
    threads = worth(threads, indptr[num_rows] * heads * 8);
    const Plan plan = make_plan(indptr, num_rows);
    parallel(threads, plan.num_blocks(), [&](int64_t block) {
        WEFT_CALL(softmax_rows, indptr, scores, out, heads, plan.bounds[block], plan.bounds[block + 1]);
    });
    if (!plan.pieces.empty()) hub_softmax(plan, scores, out, heads, threads);
}

template <class T>
void gradient(const int64_t* indptr, int64_t num_rows, const T* out, const T* grad, T* to, int64_t heads,
              int threads) {
    threads = worth(threads, indptr[num_rows] * heads * 4);
    const Plan plan = make_plan(indptr, num_rows);
    parallel(threads, plan.num_blocks(), [&](int64_t block) {
        WEFT_CALL(softmax_grad_rows, indptr, out, grad, to, heads, plan.bounds[block],
                  plan.bounds[block + 1]);
    });
    if (!plan.pieces.empty()) hub_gradient(plan, out, grad, to, heads, threads);
}

}  // namespace
}  // namespace weft

// dtype: float32 or float64.
WEFT_API int weft_edge_softmax(const int64_t* indptr, const void* scores, void* out, int64_t num_rows,
                               int64_t num_edges, int64_t heads, int dtype, int threads) {
    using namespace weft;
    if (bad_pointers(indptr, num_rows, num_edges)) return kBadPointers;
    return guarded([&](Status& status) {
        if (dtype == kFloat32)
            softmax(indptr, num_rows, static_cast<const float*>(scores), static_cast<float*>(out), heads,
                    threads);
        else
            softmax(indptr, num_rows, static_cast<const double*>(scores), static_cast<double*>(out), heads,
                    threads);
        status = kOk;
    });
}

WEFT_API int weft_edge_softmax_backward(const int64_t* indptr, const void* out, const void* grad, void* to,
                                        int64_t num_rows, int64_t num_edges, int64_t heads, int dtype,
                                        int threads) {
    using namespace weft;
    if (bad_pointers(indptr, num_rows, num_edges)) return kBadPointers;
    return guarded([&](Status& status) {
        if (dtype == kFloat32)
            gradient(indptr, num_rows, static_cast<const float*>(out), static_cast<const float*>(grad),
                     static_cast<float*>(to), heads, threads);
        else
            gradient(indptr, num_rows, static_cast<const double*>(out), static_cast<const double*>(grad),
                     static_cast<double*>(to), heads, threads);
        status = kOk;
    });
}
