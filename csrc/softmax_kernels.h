// Softmax over the edges of a row for one instruction set (see each_isa.h).
//
// Scores are [E, stride]; a call works on `heads` neighbouring heads of them, at most kHeads. The usual
// numbers of heads are vectors of that many lanes; others go head by head.

constexpr int64_t kHeads = 64;

// NaN wins, so that it is seen in the result.
template <class V>
WEFT_INLINE V larger(const V& a, const V& b) {
    return (a > b) | (a != a) ? a : b;
}

// Calls body with H heads at a time: all in one vector where their number is a vector's, else one by one.
template <class T, class Body>
WEFT_INLINE void by_heads(int64_t heads, const Body& body) {
    switch (heads) {
        case 2:
            return body(Vec<T, 2>{}, 0);
        case 4:
            return body(Vec<T, 4>{}, 0);
        case 8:
            return body(Vec<T, 8>{}, 0);
        case 16:
            return body(Vec<T, 16>{}, 0);
    }
    for (int64_t head = 0; head < heads; ++head) body(Vec<T, 1>{}, head);
}

template <class V, class T>
WEFT_INLINE V get(const T* from) {
    V value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}
template <class V, class T>
WEFT_INLINE void put(T* to, const V& value) {
    __builtin_memcpy(to, &value, sizeof value);
}

// Largest score of each head over a range of edges.
template <class T>
void softmax_max(const T* scores, int64_t count, int64_t heads, int64_t stride, T* top) {
    by_heads<T>(heads, [&](auto zero, int64_t head) __attribute__((always_inline)) {
        using V = decltype(zero);
        V most = get<V>(scores + head);
        for (int64_t e = 1; e < count; ++e) most = larger(get<V>(scores + e * stride + head), most);
        put(top + head, most);
    });
}

// out = score - top; a row of nothing but -inf stays that, where the difference would be NaN.
template <class T>
void softmax_shift(const T* scores, T* out, int64_t count, int64_t heads, int64_t stride, const T* top) {
    by_heads<T>(heads, [&](auto zero, int64_t head) __attribute__((always_inline)) {
        using V = decltype(zero);
        const V most = get<V>(top + head);
        const V shift = most == zero - static_cast<T>(__builtin_inf()) ? zero : most;
        for (int64_t e = head; e < count * stride; e += stride) put(out + e, get<V>(scores + e) - shift);
    });
}

// out = exp(out) over a run of numbers, whatever their rows and heads: whole vectors at a time.
template <class T>
void softmax_exp(T* out, int64_t size) {
    for (int64_t i = 0; i < size; ++i) out[i] = exponential(out[i]);
}

template <class T>
void softmax_sum(const T* out, int64_t count, int64_t heads, int64_t stride, T* sums) {
    by_heads<T>(heads, [&](auto zero, int64_t head) __attribute__((always_inline)) {
        using V = decltype(zero);
        V sum = zero;
        for (int64_t e = head; e < count * stride; e += stride) sum += get<V>(out + e);
        put(sums + head, sum);
    });
}

// out / sum; the sum of a row of nothing but -inf is 0, and so are its weights.
template <class T>
void softmax_scale(T* out, int64_t count, int64_t heads, int64_t stride, const T* sums) {
    by_heads<T>(heads, [&](auto zero, int64_t head) __attribute__((always_inline)) {
        using V = decltype(zero);
        const V sum = get<V>(sums + head), inverse = sum == zero ? zero : T{1} / sum;
        for (int64_t e = head; e < count * stride; e += stride) put(out + e, get<V>(out + e) * inverse);
    });
}

// Σ out · grad of each head.
template <class T>
void softmax_dot(const T* out, const T* grad, int64_t count, int64_t heads, int64_t stride, T* sums) {
    by_heads<T>(heads, [&](auto zero, int64_t head) __attribute__((always_inline)) {
        using V = decltype(zero);
        V sum = zero;
        for (int64_t e = head; e < count * stride; e += stride) sum += get<V>(out + e) * get<V>(grad + e);
        put(sums + head, sum);
    });
}

// to = out · (grad - sum).
template <class T>
void softmax_grad(const T* out, const T* grad, T* to, int64_t count, int64_t heads, int64_t stride,
                  const T* sums) {
    by_heads<T>(heads, [&](auto zero, int64_t head) __attribute__((always_inline)) {
        using V = decltype(zero);
        const V sum = get<V>(sums + head);
        for (int64_t e = head; e < count * stride; e += stride)
            put(to + e, get<V>(out + e) * (get<V>(grad + e) - sum));
    });
}

// Calls body(first head, number of heads) over at most kHeads heads at a time.
template <class Body>
WEFT_INLINE void head_blocks(int64_t heads, const Body& body) {
    for (int64_t head = 0; head < heads; head += kHeads)
        body(head, heads - head < kHeads ? heads - head : kHeads);
}

// The rows first … last of a block, none of them a hub. Rows are short, so the exponentials of all are taken
// at once.
template <class T>
void softmax_run(const int64_t* indptr, const T* scores, T* out, int64_t stride, int64_t first,
                 int64_t last) {
    T held[kHeads];
    const auto each_row = [&](const auto& body) __attribute__((always_inline)) {
        for (int64_t row = first; row < last; ++row) {
            const int64_t at = indptr[row] * stride, count = indptr[row + 1] - indptr[row];
            if (count)
                head_blocks(stride, [&](int64_t head, int64_t heads)
                                        __attribute__((always_inline)) { body(at + head, count, heads); });
        }
    };
    each_row([&](int64_t at, int64_t count, int64_t heads) __attribute__((always_inline)) {
        softmax_max(scores + at, count, heads, stride, held);
        softmax_shift(scores + at, out + at, count, heads, stride, held);
    });
    softmax_exp(out + indptr[first] * stride, (indptr[last] - indptr[first]) * stride);
    each_row([&](int64_t at, int64_t count, int64_t heads) __attribute__((always_inline)) {
        softmax_sum(out + at, count, heads, stride, held);
        softmax_scale(out + at, count, heads, stride, held);
    });
}

// Calls run(first, last) for the runs of rows between hubs.
template <class Run>
WEFT_INLINE void between_hubs(const int64_t* indptr, int64_t first, int64_t last, const Run& run) {
    int64_t begin = first;
    for (int64_t row = first; row < last; ++row) {
        if (indptr[row + 1] - indptr[row] <= kHub) continue;
        run(begin, row);
        begin = row + 1;
    }
    run(begin, last);
}

template <class T>
void softmax_rows(const int64_t* indptr, const T* scores, T* out, int64_t stride, int64_t first,
                  int64_t last) {
    between_hubs(indptr, first, last,
                 [&](int64_t begin, int64_t end) { softmax_run(indptr, scores, out, stride, begin, end); });
}

template <class T>
void softmax_grad_rows(const int64_t* indptr, const T* out, const T* grad, T* to, int64_t stride,
                       int64_t first, int64_t last) {
    T sums[kHeads];
    for (int64_t row = first; row < last; ++row) {
        const int64_t count = indptr[row + 1] - indptr[row];
        if (count > kHub) continue;
        head_blocks(stride, [&](int64_t head, int64_t heads) {
            const int64_t at = indptr[row] * stride + head;
            softmax_dot(out + at, grad + at, count, heads, stride, sums);
            softmax_grad(out + at, grad + at, to + at, count, heads, stride, sums);
        });
    }
}
