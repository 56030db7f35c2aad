// Softmax over the edges of a row for one instruction set (see each_isa.h). Scores are [E, heads]; `heads`
// counts at most kHeads of them at a time, and `stride` is the distance of two edges.

constexpr int64_t kHeads = 64;

// Largest score of each head over the edges of a range; NaN wins, so that it is seen in the result.
template <class T>
void softmax_max(const T* scores, int64_t count, int64_t heads, int64_t stride, T* top) {
    for (int64_t h = 0; h < heads; ++h) top[h] = scores[h];
    if (heads == 1) {
        T most = top[0];
        for (int64_t e = 0; e < count; ++e)
            most = scores[e * stride] > most || scores[e * stride] != scores[e * stride] ? scores[e * stride]
                                                                                         : most;
        top[0] = most;
        return;
    }
    for (int64_t e = 1; e < count; ++e)
        for (int64_t h = 0; h < heads; ++h) {
            const T score = scores[e * stride + h];
            top[h] = score > top[h] || score != score ? score : top[h];
        }
}

// out = exp(score - top), and the sum of each head.
template <class T>
void softmax_exp(const T* scores, T* out, int64_t count, int64_t heads, int64_t stride, const T* top,
                 T* sums) {
    for (int64_t h = 0; h < heads; ++h) sums[h] = 0;
    if (heads == 1 && stride == 1) {
        const T shift = top[0];
        for (int64_t e = 0; e < count; ++e) out[e] = exponential(scores[e] - shift);
        T sum = 0;
        for (int64_t e = 0; e < count; ++e) sum += out[e];
        sums[0] = sum;
        return;
    }
    for (int64_t e = 0; e < count; ++e)
        for (int64_t h = 0; h < heads; ++h) {
            const T power = exponential(scores[e * stride + h] - top[h]);
            out[e * stride + h] = power;
            sums[h] += power;
        }
}

template <class T>
void softmax_scale(T* out, int64_t count, int64_t heads, int64_t stride, const T* sums) {
    T inverse[kHeads];
    for (int64_t h = 0; h < heads; ++h) inverse[h] = T{1} / sums[h];
    for (int64_t e = 0; e < count; ++e)
        for (int64_t h = 0; h < heads; ++h) out[e * stride + h] *= inverse[h];
}

// Σ out · grad of each head.
template <class T>
void softmax_dot(const T* out, const T* grad, int64_t count, int64_t heads, int64_t stride, T* sums) {
    for (int64_t h = 0; h < heads; ++h) sums[h] = 0;
    for (int64_t e = 0; e < count; ++e)
        for (int64_t h = 0; h < heads; ++h) sums[h] += out[e * stride + h] * grad[e * stride + h];
}

// to = out · (grad - sum).
template <class T>
void softmax_grad(const T* out, const T* grad, T* to, int64_t count, int64_t heads, int64_t stride,
                  const T* sums) {
    for (int64_t e = 0; e < count; ++e)
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
