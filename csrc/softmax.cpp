// Softmax over the edges of each row, and its gradient. The parts of a hub row are reduced one by one and
// merged in their order, then written part by part.
#define WEFT_KERNELS "softmax_kernels.h"
#include "each_isa.h"

namespace weft {
namespace {

// The parts of hub rows, each holding a number for each head.
template <class T>
struct Parts {
    const Plan& plan;
    int64_t stride;
    int threads;
    std::vector<T> held;

    Parts(const Plan& rows, int64_t heads, int use)
        : plan(rows), stride(heads), threads(use), held(rows.pieces.size() * heads) {}

    // on_part(place of the first score, edges, heads, the numbers of these heads)
    template <class OnPart>
    void each(const OnPart& on_part) {
        parallel(threads, static_cast<int64_t>(plan.pieces.size()), [&](int64_t number) {
            const Piece& piece = plan.pieces[number];
            portable::head_blocks(stride, [&](int64_t head, int64_t heads) {
                on_part(piece.begin * stride + head, piece.end - piece.begin, heads,
                        &held[number * stride + head]);
            });
        });
    }

    // Reduces the numbers of all parts of a row, in their order, and gives every part the result.
    template <class Combine>
    void merge(const Combine& combine) {
        run_hubs(plan, 1, [&](int64_t, int64_t first, int64_t count) {
            for (int64_t head = 0; head < stride; ++head) {
                T value = held[first * stride + head];
                for (int64_t part = 1; part < count; ++part)
                    value = combine(value, held[(first + part) * stride + head]);
                for (int64_t part = 0; part < count; ++part) held[(first + part) * stride + head] = value;
            }
        });
    }
};

template <class T>
void hub_softmax(const Plan& plan, const T* scores, T* out, int64_t stride, int threads) {
    Parts<T> parts(plan, stride, threads);
    parts.each([&](int64_t at, int64_t count, int64_t heads, T* top) {
        WEFT_CALL(softmax_max, scores + at, count, heads, stride, top);
    });
    parts.merge([](T a, T b) { return b > a || b != b ? b : a; });
    parts.each([&](int64_t at, int64_t count, int64_t heads, const T* top) {
        WEFT_CALL(softmax_shift, scores + at, out + at, count, heads, stride, top);
    });
    parallel(threads, static_cast<int64_t>(plan.pieces.size()), [&](int64_t number) {
        const Piece& piece = plan.pieces[number];
        WEFT_CALL(softmax_exp, out + piece.begin * stride, (piece.end - piece.begin) * stride);
    });
    parts.each([&](int64_t at, int64_t count, int64_t heads, T* sums) {
        WEFT_CALL(softmax_sum, out + at, count, heads, stride, sums);
    });
    parts.merge([](T a, T b) { return a + b; });
    parts.each([&](int64_t at, int64_t count, int64_t heads, const T* sums) {
        WEFT_CALL(softmax_scale, out + at, count, heads, stride, sums);
    });
}

template <class T>
void hub_gradient(const Plan& plan, const T* out, const T* grad, T* to, int64_t stride, int threads) {
    Parts<T> parts(plan, stride, threads);
    parts.each([&](int64_t at, int64_t count, int64_t heads, T* sums) {
        WEFT_CALL(softmax_dot, out + at, grad + at, count, heads, stride, sums);
    });
    parts.merge([](T a, T b) { return a + b; });
    parts.each([&](int64_t at, int64_t count, int64_t heads, const T* sums) {
        WEFT_CALL(softmax_grad, out + at, grad + at, to + at, count, heads, stride, sums);
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

// scores and out: [num_edges, heads], float32 or float64.
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

// out, grad and `to`, the gradient of the scores: [num_edges, heads].
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
