// Vectors of a fixed width and functions that compilers vectorise. Include inside a namespace of one
// instruction set, after every standard header: what is defined here is compiled for the instruction set in
// force. No include guard: each instruction set has its own copy.

template <class T, int W>
struct Pack {
    typedef T type __attribute__((vector_size(W * sizeof(T))));
};
template <class T, int W>
using Vec = typename Pack<T, W>::type;

template <int W, class T>
WEFT_INLINE Vec<T, W> load(const T* from) {
    Vec<T, W> value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

template <int W, class T>
WEFT_INLINE void store(T* to, const Vec<T, W>& value) {
    __builtin_memcpy(to, &value, sizeof value);
}

template <int... I>
struct Indices {};
template <int N, int... I>
struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <int... I>
struct MakeIndices<0, I...> {
    typedef Indices<I...> type;
};

// Two vectors of K sums each, a sum spread over W / K neighbouring lanes, become one vector of 2 K sums.
template <class T, int W, int K, int... I>
WEFT_INLINE Vec<T, W> fold_pair(const Vec<T, W>& x, const Vec<T, W>& y, Indices<I...>) {
    constexpr int half = W / K / 2;
    return __builtin_shufflevector(x, y, ((I / half) * 2 * half + I % half)...) +
           __builtin_shufflevector(x, y, ((I / half) * 2 * half + half + I % half)...);
}

template <class T, int W, int K>
WEFT_INLINE Vec<T, W> fold_pair(const Vec<T, W>& x, const Vec<T, W>& y) {
    return fold_pair<T, W, K>(x, y, typename MakeIndices<W>::type());
}

// The sums of N vectors (N a power of two, at most W), written to N neighbouring places.
template <class T, int W, int N>
WEFT_INLINE void sums(const Vec<T, W>* v, T* to) {
    Vec<T, W> level[N];
    for (int i = 0; i < N; i++) level[i] = v[i];
    if constexpr (N >= 2)
        for (int i = 0; i < N / 2; i++) level[i] = fold_pair<T, W, 1>(level[2 * i], level[2 * i + 1]);
    if constexpr (N >= 4)
        for (int i = 0; i < N / 4; i++) level[i] = fold_pair<T, W, 2>(level[2 * i], level[2 * i + 1]);
    if constexpr (N >= 8)
        for (int i = 0; i < N / 8; i++) level[i] = fold_pair<T, W, 4>(level[2 * i], level[2 * i + 1]);
    Vec<T, W> one = level[0];
    if constexpr (N < 2 && W >= 2) one = fold_pair<T, W, 1>(one, one);
    if constexpr (N < 4 && W >= 4) one = fold_pair<T, W, 2>(one, one);
    if constexpr (N < 8 && W >= 8) one = fold_pair<T, W, 4>(one, one);
    if constexpr (W >= 16) one = fold_pair<T, W, 8>(one, one);
    __builtin_memcpy(to, &one, N * sizeof(T));
}

// exp(r) - 1 for |r| <= ln 2 / 2.
template <class V>
WEFT_INLINE V reduced_float(const V& r) {
    V p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * r * r + r;
}
template <class V>
WEFT_INLINE V reduced_double(const V& r) {
    // Taylor: r^14 / 14! is below 5e-18.
    V p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    return p * r * r + r;
}

// exp(x) for x <= 0, about 1 ulp; 0 where the result would be subnormal, NaN for NaN. V is float or a vector
// of it, I the integer (vector) of the same size. Branch-free: loops over the scalar form vectorise too,
// which they do not over std::exp.
template <class V, class I>
WEFT_INLINE V exponential_float(const V& x) {
    constexpr float round = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    const V least = V{} - 87.3f, zero = V{};
    const V safe = x < least ? least : x;
    const V shifted = safe * 1.44269504088896341f + round;
    const V n = shifted - round;
    const V r = safe - n * 0.693359375f + n * 2.12194440e-4f;
    const V p = reduced_float(r) + 1.0f;
    // The low bits of `shifted` are n; moved to the exponent they multiply by 2^n.
    const I scaled = __builtin_bit_cast(I, p) + (__builtin_bit_cast(I, shifted) << 23);
    const V result = x < least ? zero : __builtin_bit_cast(V, scaled);
    return x == x ? result : x;
}

template <class V, class I>
WEFT_INLINE V exponential_double(const V& x) {
    constexpr double round = 6755399441055744.0;  // 1.5 * 2^52
    const V least = V{} - 708.0, zero = V{};
    const V safe = x < least ? least : x;
    const V shifted = safe * 1.44269504088896340736 + round;
    const V n = shifted - round;
    const V r = safe - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6;
    const V p = reduced_double(r) + 1.0;
    const I scaled = __builtin_bit_cast(I, p) + (__builtin_bit_cast(I, shifted) << 52);
    const V result = x < least ? zero : __builtin_bit_cast(V, scaled);
    return x == x ? result : x;
}

WEFT_INLINE float exponential(float x) { return exponential_float<float, int32_t>(x); }
WEFT_INLINE double exponential(double x) { return exponential_double<double, int64_t>(x); }

template <int W>
WEFT_INLINE Vec<float, W> exponentials(const Vec<float, W>& x) {
    return exponential_float<Vec<float, W>, Vec<int32_t, W>>(x);
}
template <int W>
WEFT_INLINE Vec<double, W> exponentials(const Vec<double, W>& x) {
    return exponential_double<Vec<double, W>, Vec<int64_t, W>>(x);
}
