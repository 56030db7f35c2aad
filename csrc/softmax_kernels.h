// Softmax over the edges of a row for one instruction set (see each_isa.h). Scores are [E, heads]; `heads`
// counts at most kHeads of them at a time, and `stride` is the distance of two edges.

constexpr int64_t kHeads = 64;

template <class T>
constexpr int kLanes = kVectorBytes / sizeof(T);

// Whether heads lie side by side and divide a vector, so that lane i of any vector belongs to head i % heads:
// then a row is one run of numbers, and a value for each head is a vector that repeats them.
template <class T>
WEFT_INLINE bool regular(int64_t heads, int64_t stride) {
    return stride == heads && kLanes<T> % heads == 0;
}
template <class T>
WEFT_INLINE void repeat(const T* value, int64_t heads, T* lanes) {
    for (int64_t lane = 0; lane < kLanes<T>; ++lane) lanes[lane] = value[lane % heads];
}

// NaN wins, so that it is seen in the result.
template <class T>
WEFT_INLINE T larger(T a, T b) {
    return a > b || a != a ? a : b;
}

// Largest score of each head over the edges of a range.
template <class T>
void softmax_max(const T* scores, int64_t count, int64_t heads, int64_t stride, T* top) {
    constexpr int Lanes = kLanes<T>;
    for (int64_t h = 0; h < heads; ++h) top[h] = scores[h];
    int64_t e = 1;
    if (regular<T>(heads, stride)) {
        const int64_t all = count * heads, whole = all - all % Lanes;
        T lanes[Lanes];
        repeat(top, heads, lanes);
        for (int64_t i = 0; i < whole; i += Lanes)
            for (int lane = 0; lane < Lanes; ++lane) lanes[lane] = larger(scores[i + lane], lanes[lane]);
        for (int lane = 0; lane < Lanes; ++lane) top[lane % heads] = larger(lanes[lane], top[lane % heads]);
        e = whole / heads;
    }
    for (; e < count; ++e)
        for (int64_t h = 0; h < heads; ++h) top[h] = larger(scores[e * stride + h], top[h]);
}

// out = exp(score - top), and the sum of each head.
template <class T>
void softmax_exp(const T* scores, T* out, int64_t count, int64_t heads, int64_t stride, const T* top,
                 T* sums) {
    constexpr int Lanes = kLanes<T>;
    for (int64_t h = 0; h < heads; ++h) sums[h] = 0;
    int64_t e = 0;
    if (regular<T>(heads, stride)) {
        const int64_t all = count * heads, whole = all - all % Lanes;
        T shift[Lanes], lanes[Lanes] = {};
        repeat(top, heads, shift);
        for (int64_t i = 0; i < whole; i += Lanes)
            for (int lane = 0; lane < Lanes; ++lane) {
                out[i + lane] = exponential(scores[i + lane] - shift[lane]);
                lanes[lane] += out[i + lane];
            }
        for (int lane = 0; lane < Lanes; ++lane) sums[lane % heads] += lanes[lane];
        e = whole / heads;
    }
    for (; e < count; ++e)
        for (int64_t h = 0; h < heads; ++h) {
            const T power = exponential(scores[e * stride + h] - top[h]);
            out[e * stride + h] = power;
            sums[h] += power;
        }
}

template <class T>
void softmax_scale(T* out, int64_t count, int64_t heads, int64_t stride, const T* sums) {
    constexpr int Lanes = kLanes<T>;
    T inverse[kHeads];
    for (int64_t h = 0; h < heads; ++h) inverse[h] = T{1} / sums[h];
    int64_t e = 0;
    if (regular<T>(heads, stride)) {
        const int64_t all = count * heads, whole = all - all % Lanes;
        T lanes[Lanes];
        repeat(inverse, heads, lanes);
        for (int64_t i = 0; i < whole; i += Lanes)
            for (int lane = 0; lane < Lanes; ++lane) out[i + lane] *= lanes[lane];
        e = whole / heads;
    }
    for (; e < count; ++e)
        for (int64_t h = 0; h < heads; ++h) out[e * stride + h] *= inverse[h];
}

// Σ out · grad of each head.
template <class T>
void softmax_dot(const T* out, const T* grad, int64_t count, int64_t heads, int64_t stride, T* sums) {
    constexpr int Lanes = kLanes<T>;
    for (int64_t h = 0; h < heads; ++h) sums[h] = 0;
    int64_t e = 0;
    if (regular<T>(heads, stride)) {
        const int64_t all = count * heads, whole = all - all % Lanes;
        T lanes[Lanes] = {};
        for (int64_t i = 0; i < whole; i += Lanes)
            for (int lane = 0; lane < Lanes; ++lane) lanes[lane] += out[i + lane] * grad[i + lane];
        for (int lane = 0; lane < Lanes; ++lane) sums[lane % heads] += lanes[lane];
        e = whole / heads;
    }
    for (; e < count; ++e)
        for (int64_t h = 0; h < heads; ++h) sums[h] += out[e * stride + h] * grad[e * stride + h];
}

// to = out · (grad - sum).
template <class T>
void softmax_grad(const T* out, const T* grad, T* to, int64_t count, int64_t heads, int64_t stride,
                  const T* sums) {
    constexpr int Lanes = kLanes<T>;
    int64_t e = 0;
    if (regular<T>(heads, stride)) {
        const int64_t all = count * heads, whole = all - all % Lanes;
        T lanes[Lanes];
        repeat(sums, heads, lanes);
        for (int64_t i = 0; i < whole; i += Lanes)
            for (int lane = 0; lane < Lanes; ++lane)
                to[i + lane] = out[i + lane] * (grad[i + lane] - lanes[lane]);
        e = whole / heads;
    }
    for (; e < count; ++e)
        for (int64_t h = 0; h < heads; ++h)
            to[e * stride + h] = out[e * stride + h] * (grad[e * stride + h] - sums[h]);
}

template <class T>
void softmax_rows(const int64_t* indptr, const T* scores, T* out, int64_t all_heads, int64_t first,
                  int64_t last) {
    T top[kHeads], sums[kHeads];
    for (int64_t row = first; row < last; ++row) {
        const int64_t begin = indptr[row], count = indptr[row + 1] - begin;
        if (count == 0 || count > kHub) continue;
        for (int64_t head = 0; head < all_heads; head += kHeads) {
            const int64_t heads = all_heads - head < kHeads ? all_heads - head : kHeads,
                          at = begin * all_heads + head;
            softmax_max(scores + at, count, heads, all_heads, top);
            softmax_exp(scores + at, out + at, count, heads, all_heads, top, sums);
            softmax_scale(out + at, count, heads, all_heads, sums);
        }
    }
}

template <class T>
void softmax_grad_rows(const int64_t* indptr, const T* out, const T* grad, T* to, int64_t all_heads,
                       int64_t first, int64_t last) {
    T sums[kHeads];
    for (int64_t row = first; row < last; ++row) {
        const int64_t begin = indptr[row], count = indptr[row + 1] - begin;
        if (count > kHub) continue;
        for (int64_t head = 0; head < all_heads; head += kHeads) {
            const int64_t heads = all_heads - head < kHeads ? all_heads - head : kHeads,
                          at = begin * all_heads + head;
            softmax_dot(out + at, grad + at, count, heads, all_heads, sums);
            softmax_grad(out + at, grad + at, to + at, count, heads, all_heads, sums);
        }
    }
}
