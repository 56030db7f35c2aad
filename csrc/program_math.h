// Functions of vectors over the whole range of their arguments, infinite and
// NaN too, for one instruction set (see each_isa.h). About 1 ulp. What is
// rarely used is computed in double for both types.

template <class T>
struct Range {  // float
    static constexpr int kMantissa = 23;
    static constexpr AccInt<T> kBias = 127;
    static constexpr T kRound = 12582912.0f, kInfinity = __builtin_inff();
    static constexpr T kLeast = -104.0f,
                       kMost = 88.8f;  // exp is 0 below and infinite above
    static constexpr T kMinusOne = -20.0f,
                       kOne = 10.0f;  // expm1 is -1 below, tanh is 1 above
    template <class V>
    static WEFT_INLINE V less(const V& x, const V& n) {
        return x - n * 0.693359375f + n * 2.12194440e-4f;
    }
    template <class V>
    static WEFT_INLINE V reduced(const V& r) {
        return reduced_float(r);
    }
};
template <>
struct Range<double> {
    static constexpr int kMantissa = 52;
    static constexpr int64_t kBias = 1023;
    static constexpr double kRound = 6755399441055744.0, kInfinity = __builtin_inf();
    static constexpr double kLeast = -746.0, kMost = 709.8;
    static constexpr double kMinusOne = -40.0, kOne = 20.0;
    template <class V>
    static WEFT_INLINE V less(const V& x, const V& n) {
        return x - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6;
    }
    template <class V>
    static WEFT_INLINE V reduced(const V& r) {
        return reduced_double(r);
    }
};

template <class T, int W>
WEFT_INLINE Vec<T, W> clamp(const Vec<T, W>& x, T least, T most) {
    const Vec<T, W> low = x < least ? splat<W>(least) : x;
    return low > most ? splat<W>(most) : low;
}

// 2^n.
template <class T, int W>
WEFT_INLINE Vec<T, W> power_of_two(const Vec<AccInt<T>, W>& n) {
    return bits_as<Vec<T, W>>((n + Range<T>::kBias) << Range<T>::kMantissa);
}

// x = n ln 2 + r: exp(r) - 1 is returned, n written.
template <class T, int W>
WEFT_INLINE Vec<T, W> split_exp(const Vec<T, W>& x, Vec<AccInt<T>, W>& n) {
    typedef Vec<AccInt<T>, W> Int;
    const Vec<T, W> round = splat<W>(Range<T>::kRound);
    const Vec<T, W> shifted = x * static_cast<T>(1.44269504088896340736) + round;
    n = bits_as<Int>(shifted) - bits_as<Int>(round);
    return Range<T>::reduced(Range<T>::less(x, shifted - round));
}

// p · 2^n, where 2^n may be infinite or subnormal.
template <class T, int W>
WEFT_INLINE Vec<T, W> scaled(const Vec<T, W>& p, const Vec<AccInt<T>, W>& n) {
#ifdef __AVX512F__
    if constexpr (W * sizeof(T) == 64) {
        typedef Vec<T, W> V;
        if constexpr (sizeof(T) == 4)
            return (V)_mm512_scalef_ps((__m512)p, _mm512_cvtepi32_ps((__m512i)n));
        else
            return (V)_mm512_scalef_pd((__m512d)p, _mm512_cvtepi64_pd((__m512i)n));
    }
#endif
    const Vec<AccInt<T>, W> half = n >> 1;
    return p * power_of_two<T, W>(half) * power_of_two<T, W>(n - half);
}

template <class T, int W>
WEFT_INLINE Vec<T, W> exp_of(const Vec<T, W>& x) {
    Vec<AccInt<T>, W> n;
    const Vec<T, W> p = split_exp<T, W>(clamp<T, W>(x, Range<T>::kLeast, Range<T>::kMost), n) + T{1};
    return x == x ? scaled<T, W>(p, n) : x;
}

template <class T, int W>
WEFT_INLINE Vec<T, W> expm1_of(const Vec<T, W>& x) {
    Vec<AccInt<T>, W> n;
    const Vec<T, W> p = split_exp<T, W>(clamp<T, W>(x, Range<T>::kMinusOne, Range<T>::kMost), n);
    const Vec<T, W> half = power_of_two<T, W>(n - 1);  // 2^n itself may be infinite
    const Vec<T, W> result = (half * p + (half - T{0.5})) * T{2};
    return (x == x) & (x != T{0}) ? result : x;
}

template <class T, int W>
WEFT_INLINE Vec<T, W> sigmoid_of(const Vec<T, W>& x) {
    return T{1} / (T{1} + exp_of<T, W>(-x));
}

template <class T, int W>
WEFT_INLINE Vec<T, W> with_sign(const Vec<T, W>& size, const Vec<T, W>& sign) {
    typedef Vec<AccInt<T>, W> Int;
    const Int bit = bits_as<Int>(splat<W>(T{-0.0}));
    return bits_as<Vec<T, W>>((bits_as<Int>(size) & ~bit) | (bits_as<Int>(sign) & bit));
}

template <class T, int W>
WEFT_INLINE Vec<T, W> abs_of(const Vec<T, W>& x) {
    return with_sign<T, W>(x, Vec<T, W>{});
}

template <class T, int W>
WEFT_INLINE Vec<T, W> tanh_of(const Vec<T, W>& x) {
    const Vec<T, W> size = abs_of<T, W>(x), near = size > Range<T>::kOne ? splat<W>(Range<T>::kOne) : size;
    const Vec<T, W> grown = expm1_of<T, W>(near * T{2});
    return with_sign<T, W>(grown / (grown + T{2}), x);
}

// The rest in double.
template <int W>
WEFT_INLINE Vec<double, W> log_of(const Vec<double, W>& x) {
    typedef Vec<double, W> V;
    typedef Vec<uint64_t, W> Bits;
    constexpr uint64_t root_half = 0x3FE6A09E00000000u, top = uint64_t{0xFFF} << 52;
    const auto small = x < 0x1p-1022;
    const Bits bits = bits_as<Bits>(small ? x * 0x1p54 : x);
    const Bits moved = bits - root_half;
    const V mantissa = bits_as<V>(bits - (moved & top));
    // The exponent + 1024, put in the low bits of 2^52.
    V k = bits_as<V>(((moved + (uint64_t{1024} << 52)) >> 52) | 0x4330000000000000u) - (0x1p52 + 1024.0);
    k = small ? k - 54.0 : k;
    const V f = mantissa - 1.0, s = f / (2.0 + f), z = s * s, w = z * z;
    const V even =
        w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    const V odd =
        z * (6.666666666666735130e-01 +
             w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    const V half = 0.5 * f * f;
    const V result = k * 6.93147180369123816490e-01 -
                     ((half - (s * (half + even + odd) + k * 1.90821492927058770002e-10)) - f);
    const V infinite = splat<W>(__builtin_inf());
    const V special = x == 0.0 ? -infinite : x > 0.0 ? x : splat<W>(__builtin_nan(""));
    return (x > 0.0) & (x < infinite) ? result : special;
}

template <int W>
WEFT_INLINE Vec<double, W> log1p_of(const Vec<double, W>& x) {
    typedef Vec<double, W> V;
    const V u = x + 1.0, lost = (x - (u - 1.0)) / u;
    const V log = log_of<W>(u);
    const V sum = (u > 0.0) & (u < __builtin_inf()) ? log + lost : log;
    return x == 0.0 ? x : sum;
}

// Coefficients from the highest.
template <int W, int N>
WEFT_INLINE Vec<double, W> polynomial(const Vec<double, W>& x, const double (&coefficients)[N]) {
    Vec<double, W> p = splat<W>(coefficients[0]);
#pragma GCC unroll 32
    for (int i = 1; i < N; ++i) p = p * x + coefficients[i];
    return p;
}

// erf(x) = x P(x²) up to 1, from there 1 - exp(-x²) Q((x - 3) / (x + 3)):
// Chebyshev series as polynomials.
template <int W>
WEFT_INLINE Vec<double, W> erf_of(const Vec<double, W>& x) {
    typedef Vec<double, W> V;
    static constexpr double near[] = {
        1.45481707596067901e-14, -3.79109303927172182e-13, 9.1676067460694449e-12,  -2.03524939202478532e-10,
        4.11580059766495944e-09, -7.51156916067813772e-08, 1.22338273835240096e-06, -1.75371694414921001e-05,
        0.000217517156041601072, -0.0022854855611440673,   0.0198524966889837072,   -0.140536089022717121,
        0.965468738669867308};
    static constexpr double far[] = {
        -1.66893088949796409e-13, 4.50593441010392217e-15,  6.711640674248828e-12,
        6.02996076416514259e-12,  -2.58089847543002896e-10, -2.63787960882679351e-10,
        1.13402549732697804e-08,  -4.52672235803392705e-09, -5.54127740980288956e-07,
        2.42555748116759359e-06,  0.0000195635833076231147, -0.000331602960578468167,
        0.00247931469707250969,   -0.0127131476956919939,   0.0496984454033947917,
        -0.154361174294369178,    0.207983291333428862};
    const V size = abs_of<double, W>(x), far_size = clamp<double, W>(size, 1.0, 6.0);
    const V small = size > 1.0 ? splat<W>(1.0) : size;
    const V one = small * polynomial<W>(small * small * 2.0 - 1.0, near);
    const V place = (far_size - 3.0) / (far_size + 3.0) * 2.4 + 0.2;
    const V two = 1.0 - exp_of<double, W>(-far_size * far_size) * polynomial<W>(place, far);
    const V result = with_sign<double, W>(size > 1.0 ? two : one, x);
    return x == x ? result : x;
}

// sin(x + quarters π / 2). From 2^20 on, where a product with three parts of π
// / 2 is no longer exact, the library's.
template <int W>
WEFT_INLINE Vec<double, W> sin_of(const Vec<double, W>& x, int quarters) {
    typedef Vec<double, W> V;
    typedef Vec<int64_t, W> Int;
    static constexpr double sine[] = {1.58969099521155010221e-10, -2.50507602534068634195e-08,
                                      2.75573137070700676789e-06, -1.98412698298579493134e-04,
                                      8.33333333332248946124e-03, -1.66666666666666324348e-01};
    static constexpr double cosine[] = {-1.13596475577881948265e-11, 2.08757232129817482790e-09,
                                        -2.75573143513906633035e-07, 2.48015872894767294178e-05,
                                        -1.38888888888741095749e-03, 4.16666666666666019037e-02};
    const auto near = abs_of<double, W>(x) < 0x1p20;
    const V safe = near ? x : V{}, round = splat<W>(Range<double>::kRound);
    const V shifted = safe * 6.36619772367581382433e-01 + round, n = shifted - round;
    const V r = safe - n * 1.57079632673412561417e+00 - n * 6.07710050630396597660e-11 -
                n * 2.02226624879595063154e-21;
    const Int turn = bits_as<Int>(shifted) + quarters;
    const V z = r * r;
    const V along = r + r * z * polynomial<W>(z, sine);
    const V across = 1.0 - (0.5 * z - z * z * polynomial<W>(z, cosine));
    V result = (turn & 1) == 1 ? across : along;
    result = (turn & 2) == 2 ? -result : result;
    if (quarters == 0) result = x == 0.0 ? x : result;
    for (int lane = 0; lane < W; ++lane)
        if (!near[lane]) result[lane] = quarters ? __builtin_cos(x[lane]) : __builtin_sin(x[lane]);
    return result;
}

// Runs a function of doubles on vectors of either type.
template <class T, int W, class F>
WEFT_INLINE Vec<T, W> in_double(const Vec<T, W>& x, const F& f) {
    if constexpr (sizeof(T) == 8) {
        return f(x);
    } else {
        Vec<double, W / 2> halves[2];
        Vec<T, W / 2> parts[2];
        __builtin_memcpy(parts, &x, sizeof x);
        for (int i = 0; i < 2; ++i) {
            halves[i] = f(__builtin_convertvector(parts[i], Vec<double, W / 2>));
            parts[i] = __builtin_convertvector(halves[i], Vec<T, W / 2>);
        }
        Vec<T, W> result;
        __builtin_memcpy(&result, parts, sizeof result);
        return result;
    }
}
