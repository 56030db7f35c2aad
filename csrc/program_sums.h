// Sums over the width and the heads of an edge's values, for one instruction
// set (see each_isa.h).
#include "program_steps.h"

// A product that is rounded by itself, as a step `mul` rounds it: not the first
// half of a fused multiply and add.
template <class V>
WEFT_INLINE V rounded_product(const V& a, const V& b) {
    V product = a * b;
#if defined(__x86_64__)
    asm("" : "+x"(product));
#else
    asm("" : "+m"(product));
#endif
    return product;
}

// The sums of rows of `width` values, four rows at a time, each in the same
// order wherever it lies: the vectors of a row are added up, the last without
// what belongs to the next row or came before. `at(k, i)` gives the vector of
// row k of the four from value i on.
template <class T>
struct WidthSums {
    static constexpr int Lanes = kLanes<T>;
    typedef Vec<T, Lanes> V;
    typedef Vec<AccInt<T>, Lanes> Int;
    int64_t whole, last;
    bool rest;
    Int kept;

    WEFT_INLINE explicit WidthSums(int64_t width)
        : whole(width / Lanes), last(width >= Lanes ? width - Lanes : 0), rest(width != whole * Lanes) {
        Int lane;
        for (int i = 0; i < Lanes; ++i) lane[i] = i;
        const auto left = static_cast<AccInt<T>>(width - whole * Lanes);
        kept = width >= Lanes ? lane >= static_cast<AccInt<T>>(Lanes) - left : lane < left;
    }

    template <class At>
    WEFT_INLINE void four(T* to, const At& at) const {
        V sum[4] = {};
        for (int64_t i = 0; i < whole; ++i)
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k) sum[k] += at(k, i * Lanes);
        if (rest)
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k) sum[k] += kept ? at(k, last) : V{};
        if constexpr (Lanes >= 4) {
            sums<T, Lanes, 4>(sum, to);
        } else {
            sums<T, Lanes, 2>(sum, to);
            sums<T, Lanes, 2>(sum + 2, to + 2);
        }
    }
};

template <class T>
__attribute__((noinline)) void sum_width(const T* from, T* to, int64_t rows, int64_t width) {
    if constexpr (kLanes<T> >= 4) {
        if (width == 2) return sum_narrow<2>(from, to, rows);
        if (width == 4) return sum_narrow<4>(from, to, rows);
    }
    const WidthSums<T> sums(width);
    for (int64_t row = 0; row < rows; row += 4, from += 4 * width, to += 4)
        sums.four(to, [&](int k, int64_t i)
                          __attribute__((always_inline)) { return load<kLanes<T>>(from + k * width + i); });
}

// The sum over the width of the product of two values, which is written
// nowhere; of the same bits as `sum_width` of a `mul`.
template <class T>
__attribute__((noinline)) void dot_width(const ProgramStep& step, const Tile<T>& tile) {
    const Argument<T> a = tile.argument(step, 0), b = tile.argument(step, 1);
    const int64_t heads = step.sizes[1], rows = tile.edges * heads;
    const WidthSums<T> sums(step.sizes[2]);
    T* to = tile.arena + step.out;
    int64_t edge = 0, head = 0;
    const int64_t work = 4 * step.sizes[2];
    for (int64_t row = 0; row < rows; row += 4, to += 4) {
        ask_ahead<T>(tile.call, tile.state, work);
        const T *x[4], *y[4];
        for (int k = 0; k < 4; ++k) {
            x[k] = a.at(edge, head), y[k] = b.at(edge, head);
            if (row + k + 1 < rows && ++head == heads) head = 0, ++edge;
        }
        sums.four(to, [&](int k, int64_t i) __attribute__((always_inline)) {
            return rounded_product(load<kLanes<T>>(x[k] + i), load<kLanes<T>>(y[k] + i));
        });
    }
}

// The sum over the middle axis of [rows, heads, width].
template <class T>
__attribute__((noinline)) void sum_heads(const T* from, T* to, int64_t rows, int64_t heads, int64_t width) {
    for (int64_t row = 0; row < rows; ++row, from += heads * width, to += width)
        in_vectors<T, kLanes<T>>(width, [&](auto zero, int64_t i) __attribute__((always_inline)) {
            using V = decltype(zero);
            V sum = get<V>(from + i);
            for (int64_t head = 1; head < heads; ++head) sum += get<V>(from + head * width + i);
            put(to + i, sum);
        });
}
