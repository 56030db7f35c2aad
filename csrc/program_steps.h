// The elementwise steps of a program on a tile of edges, for one instruction
// set (see each_isa.h).
//
// A function that rounds more than once runs on whole vectors only, so that an
// edge's value has the same bits wherever the edge lies: what a tile's buffer
// has past its end is computed too. Of steps that round once (arithmetic,
// comparisons) narrow vectors and wide ones give the same.
#include "program_narrow.h"

// Whole vectors over n values and what lies after them.
template <class T, class F>
WEFT_INLINE void each_vector(const ProgramStep& step, T* arena, int64_t edges, const F& f) {
    constexpr int Lanes = kLanes<T>;
    const T* a = arena + step.args[0];
    T* out = arena + step.out;
    const int64_t n = step.sizes[0] * edges * step.sizes[1] * step.sizes[2];
    for (int64_t i = 0; i < n; i += Lanes) store<Lanes>(out + i, f(load<Lanes>(a + i)));
}

// The loops of a step with two arguments; each is one value along the innermost
// axis where its stride is 0.
template <bool OneA, bool OneB, class T, class F>
WEFT_INLINE void pairs(const T* a, const T* b, T* out, int64_t n, const F& f) {
    const T first_a = *a, first_b = *b;
    in_vectors<T, kLanes<T>>(n, [&](auto zero, int64_t i) __attribute__((always_inline)) {
        using V = decltype(zero);
        const V x = OneA ? splat<kWidth<V, T>>(first_a) : get<V>(a + i);
        const V y = OneB ? splat<kWidth<V, T>>(first_b) : get<V>(b + i);
        put(out + i, f(x, y));
    });
}

// Whether all axes are one: the innermost is the first then, and whole vectors
// are computed.
WEFT_INLINE bool dense(const ProgramStep& step) { return step.sizes[1] == 1 && step.sizes[2] == 1; }

WEFT_INLINE bool one_value(const ProgramStep& step, int argument) {
    return step.strides[argument][dense(step) ? 0 : 2] == 0;
}

template <bool OneA, bool OneB, class T, class F>
__attribute__((noinline)) void pair_loops(const ProgramStep& step, const Tile<T>& tile, const F& f) {
    constexpr int Lanes = kLanes<T>;
    const Argument<T> a = tile.argument(step, 0), b = tile.argument(step, 1);
    T* out = tile.arena + step.out;
    const int64_t outer = step.sizes[0] * tile.edges, middle = step.sizes[1], inner = step.sizes[2];
    if (dense(step)) return pairs<OneA, OneB>(a.base, b.base, out, whole_vectors<T>(outer), f);
    if (inner == Lanes) {  // the usual width of a head
        for (int64_t i = 0; i < outer; ++i)
            for (int64_t j = 0; j < middle; ++j, out += Lanes) {
                const T *x = a.at(i, j), *y = b.at(i, j);
                store<Lanes>(out, f(OneA ? splat<Lanes>(*x) : load<Lanes>(x),
                                    OneB ? splat<Lanes>(*y) : load<Lanes>(y)));
            }
        return;
    }
    for (int64_t i = 0; i < outer; ++i)
        for (int64_t j = 0; j < middle; ++j, out += inner)
            pairs<OneA, OneB>(a.at(i, j), b.at(i, j), out, inner, f);
}

template <class T, class F>
WEFT_INLINE void each_pair(const ProgramStep& step, const Tile<T>& tile, const F& f) {
    if (narrow<T>(step) && narrow_pairs(step, tile, f)) return;
    const bool one_a = one_value(step, 0), one_b = one_value(step, 1);
    if (one_a && one_b)
        pair_loops<true, true>(step, tile, f);
    else if (one_a)
        pair_loops<true, false>(step, tile, f);
    else if (one_b)
        pair_loops<false, true>(step, tile, f);
    else
        pair_loops<false, false>(step, tile, f);
}

template <class T>
__attribute__((noinline)) void where_loops(const ProgramStep& step, const Tile<T>& tile) {
    const bool one[3] = {one_value(step, 0), one_value(step, 1), one_value(step, 2)};
    const Argument<T> args[3] = {tile.argument(step, 0), tile.argument(step, 1), tile.argument(step, 2)};
    const int64_t rows = step.sizes[0] * tile.edges, outer = dense(step) ? 1 : rows;
    const int64_t inner = dense(step) ? whole_vectors<T>(rows) : step.sizes[2];
    T* out = tile.arena + step.out;
    for (int64_t i = 0; i < outer; ++i)
        for (int64_t j = 0; j < step.sizes[1]; ++j, out += inner) {
            const T* from[3] = {args[0].at(i, j), args[1].at(i, j), args[2].at(i, j)};
            in_vectors<T, kLanes<T>>(inner, [&](auto zero, int64_t at) __attribute__((always_inline)) {
                using V = decltype(zero);
                V x[3];
                for (int k = 0; k < 3; ++k)
                    x[k] = one[k] ? splat<kWidth<V, T>>(*from[k]) : get<V>(from[k] + at);
                put(out + at, V(x[0] != T{0} ? x[1] : x[2]));
            });
        }
}

template <class V, class T, class Mask>
WEFT_INLINE V one_where(const Mask& mask) {
    return mask ? splat<kWidth<V, T>>(T{1}) : V{};
}

// x^y by the library; a square is a product.
template <class T>
__attribute__((noinline)) T power_of(T x, T y) {
    if (y == T{2}) return x * x;
    if constexpr (sizeof(T) == 8)
        return __builtin_pow(x, y);
    else
        return __builtin_powf(x, y);
}

template <class T>
void power_step(const ProgramStep& step, const Tile<T>& tile) {
    const T* power = tile.arena + step.args[1];
    const bool one = step.from[1] < 0 && !step.strides[1][0] && !step.strides[1][1] && !step.strides[1][2];
    if (one && *power == T{2})
        return each_pair(step, tile, [](auto x, auto) __attribute__((always_inline)) { return x * x; });
    each_pair(step, tile, [](auto x, auto y) __attribute__((always_inline)) {
        auto result = x;
        for (int lane = 0; lane < kWidth<decltype(x), T>; ++lane)
            result[lane] = power_of<T>(x[lane], y[lane]);
        return result;
    });
}

#define WEFT_EACH(CODE, EXPRESSION)                                                        \
    case CODE:                                                                             \
        return each_vector(step, arena, edges, [](auto x) __attribute__((always_inline)) { \
            [[maybe_unused]] constexpr int W = kLanes<T>;                                  \
            using V [[maybe_unused]] = decltype(x);                                        \
            return EXPRESSION;                                                             \
        })
#define WEFT_PAIR(CODE, EXPRESSION)                                                      \
    case CODE:                                                                           \
        return each_pair(step, tile, [](auto x, auto y) __attribute__((always_inline)) { \
            using V [[maybe_unused]] = decltype(x);                                      \
            return EXPRESSION;                                                           \
        })
#define WEFT_COMPARE(CODE, MASK) WEFT_PAIR(CODE, (one_where<V, T>(MASK)))
#define WEFT_DOUBLE(CODE, FUNCTION) \
    WEFT_EACH(CODE,                 \
              (in_double<T, W>(x, [](const auto& v) __attribute__((always_inline)) { return FUNCTION; })))

template <class V>
constexpr int kDoubles = static_cast<int>(sizeof(V) / 8);

template <class T>
__attribute__((noinline)) void unary_step(const ProgramStep& step, T* arena, int64_t edges) {
    switch (step.op) {
        WEFT_EACH(kNeg, -x);
        WEFT_EACH(kAbs, (abs_of<T, W>(x)));
        WEFT_EACH(kSign, (one_where<V, T>(x > T{0}) - one_where<V, T>(x < T{0})));
        WEFT_EACH(kNot, (one_where<V, T>(x == T{0})));
        WEFT_EACH(kRelu, V(x < T{0} ? V{} : x));
        WEFT_EACH(kReciprocal, T{1} / x);
        WEFT_EACH(kExp, (exp_of<T, W>(x)));
        WEFT_EACH(kExpm1, (expm1_of<T, W>(x)));
        WEFT_EACH(kSigmoid, (sigmoid_of<T, W>(x)));
        WEFT_EACH(kTanh, (tanh_of<T, W>(x)));
        WEFT_DOUBLE(kLog, log_of<kDoubles<decltype(+v)>>(v));
        WEFT_DOUBLE(kLog1p, log1p_of<kDoubles<decltype(+v)>>(v));
        WEFT_DOUBLE(kErf, erf_of<kDoubles<decltype(+v)>>(v));
        WEFT_DOUBLE(kSin, sin_of<kDoubles<decltype(+v)>>(v, 0));
        WEFT_DOUBLE(kCos, sin_of<kDoubles<decltype(+v)>>(v, 1));
        case kSqrt: {
            const T* a = arena + step.args[0];
            T* out = arena + step.out;
            for (int64_t i = 0; i < step.sizes[0] * edges; ++i)
                if constexpr (sizeof(T) == 8)
                    out[i] = __builtin_sqrt(a[i]);
                else
                    out[i] = __builtin_sqrtf(a[i]);
        }
    }
}

template <class T>
__attribute__((noinline)) void binary_step(const ProgramStep& step, const Tile<T>& tile) {
    switch (step.op) {
        WEFT_PAIR(kAdd, x + y);
        WEFT_PAIR(kSub, x - y);
        WEFT_PAIR(kMul, x * y);
        WEFT_PAIR(kDiv, x / y);
        WEFT_PAIR(kMaximum, V((x > y) | (x != x) ? x : y));
        WEFT_PAIR(kMinimum, V((x < y) | (x != x) ? x : y));
        WEFT_COMPARE(kEq, x == y);
        WEFT_COMPARE(kNe, x != y);
        WEFT_COMPARE(kLt, x < y);
        WEFT_COMPARE(kLe, x <= y);
        WEFT_COMPARE(kGt, x > y);
        WEFT_COMPARE(kGe, x >= y);
        WEFT_COMPARE(kSame, (x == y) | ((x != x) & (y != y)));
        case kPow:
            return power_step(step, tile);
        case kExpand:
            return each_pair(step, tile, [](auto x, auto) __attribute__((always_inline)) { return x; });
    }
}
#undef WEFT_EACH
#undef WEFT_PAIR
#undef WEFT_COMPARE
#undef WEFT_DOUBLE
