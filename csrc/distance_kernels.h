// Sums of moduli of differences for one instruction set (see each_isa.h): of complex numbers (Parts = 2), the
// real parts of a row before the imaginary ones, or of real ones (Parts = 1).

template <int Parts, class T>
WEFT_INLINE T modulus(T apart, T side) {
    if constexpr (Parts == 1)
        return apart < 0 ? -apart : apart;
    else if constexpr (sizeof(T) == 8)
        return __builtin_sqrt(apart * apart + side * side);
    else
        return __builtin_sqrtf(apart * apart + side * side);
}

// The sums of row x with `count` columns of y from y on, each [Parts * numbers] with a stride of m.
template <int Parts, class T>
WEFT_INLINE void sum_columns(const T* x, const T* y, T* out, int64_t numbers, int64_t m, int count) {
    T sums[64] = {};
    for (int64_t k = 0; k < numbers; ++k) {
        const T real = x[k], other = Parts == 2 ? x[numbers + k] : T(0);
        const T* y_real = y + k * m;
        const T* y_other = Parts == 2 ? y + (numbers + k) * m : y_real;
        for (int lane = 0; lane < count; ++lane)
            sums[lane] += modulus<Parts>(real - y_real[lane], other - y_other[lane]);
    }
    for (int lane = 0; lane < count; ++lane) out[lane] = sums[lane];
}

// out [n, m] of x [n, Parts * numbers] and y, which is turned: [Parts * numbers, m].
template <int Parts, class T>
void distance_sums(const T* x, const T* y, T* out, int64_t numbers, int64_t m, int64_t first, int64_t last) {
    for (int64_t begin = 0; begin < m; begin += 64)
        for (int64_t i = first; i < last; ++i) {
            const T* row = x + i * Parts * numbers;
            if (begin + 64 <= m)
                sum_columns<Parts>(row, y + begin, out + i * m + begin, numbers, m, 64);
            else
                sum_columns<Parts>(row, y + begin, out + i * m + begin, numbers, m,
                                   static_cast<int>(m - begin));
        }
}

// The gradient of `count` numbers of row x from x on, by the sums with all m rows of y.
template <int Parts, class T>
WEFT_INLINE void slope_columns(const T* x, const T* y, const T* grad, T* out, int64_t numbers, int64_t m,
                               int count) {
    T real[32], other[32], by_real[32] = {}, by_other[32] = {};
    for (int lane = 0; lane < count; ++lane) {
        real[lane] = x[lane];
        other[lane] = Parts == 2 ? x[numbers + lane] : T(0);
    }
    for (int64_t j = 0; j < m; ++j) {
        const T* row = y + j * Parts * numbers;
        const T weight = grad[j];
        for (int lane = 0; lane < count; ++lane) {
            const T apart = real[lane] - row[lane];
            if constexpr (Parts == 2) {
                const T side = other[lane] - row[numbers + lane];
                const T size = modulus<2>(apart, side);
                const T share = size > 0 ? weight / size : T(0);  // one that is 0 has no gradient
                by_real[lane] += apart * share;
                by_other[lane] += side * share;
            } else {
                by_real[lane] += apart > 0 ? weight : apart < 0 ? -weight : T(0);
            }
        }
    }
    for (int lane = 0; lane < count; ++lane) {
        out[lane] = by_real[lane];
        if constexpr (Parts == 2) out[numbers + lane] = by_other[lane];
    }
}

// out and x [n, Parts * numbers], y [m, Parts * numbers], grad [n, m].
template <int Parts, class T>
void distance_slopes(const T* x, const T* y, const T* grad, T* out, int64_t numbers, int64_t m, int64_t first,
                     int64_t last) {
    for (int64_t begin = 0; begin < numbers; begin += 32)
        for (int64_t i = first; i < last; ++i) {
            const int64_t at = i * Parts * numbers + begin;
            if (begin + 32 <= numbers)
                slope_columns<Parts>(x + at, y + begin, grad + i * m, out + at, numbers, m, 32);
            else
                slope_columns<Parts>(x + at, y + begin, grad + i * m, out + at, numbers, m,
                                     static_cast<int>(numbers - begin));
        }
}
