// Steps on fewer values an edge than a vector has lanes, for one instruction
// set (see each_isa.h). A vector holds values of several edges; what an
// argument has for them is loaded at once and spread over the lanes. After as
// many vectors as an edge has values, at most, the same spreading begins again.
#include "program_tile.h"

template <class T>
using Lane = Vec<AccInt<T>, kLanes<T>>;

template <class T>
WEFT_INLINE Vec<T, kLanes<T>> permuted(const Vec<T, kLanes<T>>& from, const Lane<T>& lanes) {
#ifdef __clang__
    Vec<T, kLanes<T>> to;
    for (int i = 0; i < kLanes<T>; ++i) to[i] = from[lanes[i]];
    return to;
#else
    return __builtin_shuffle(from, lanes);
#endif
}

// Where the values of an argument lie that the vectors of a result take: those
// of vector v are at `begin[v]` and after, in the order `lanes[v]`.
template <class T>
struct Spread {
    Lane<T> lanes[kLanes<T>];
    int64_t begin[kLanes<T>];
    int64_t advance = 0;  // to where the same vectors begin again
    bool fits = true;     // what a vector takes lies within one

    Spread(const Argument<T>& argument, int64_t middle, int64_t inner, int64_t vectors) {
        int64_t at = 0, j = 0, k = 0;  // place of the edge, of the value along both axes
        for (int64_t v = 0; v < vectors; ++v) {
            int64_t places[kLanes<T>], least = INT64_MAX, most = 0;
            for (int lane = 0; lane < kLanes<T>; ++lane) {
                const int64_t place = at + j * argument.strides[1] + k * argument.strides[2];
                places[lane] = place;
                least = place < least ? place : least;
                most = place > most ? place : most;
                if (++k == inner) k = 0, ++j;
                if (j == middle) j = 0, at += argument.strides[0];
            }
            begin[v] = least;
            fits = fits && most - least < kLanes<T>;
            for (int lane = 0; lane < kLanes<T>; ++lane)
                lanes[v][lane] = static_cast<AccInt<T>>(places[lane] - least);
        }
        advance = at;
    }
};

// Whether a step has so few values that its loops over an edge's would be
// shorter than a vector.
template <class T>
WEFT_INLINE bool narrow(const ProgramStep& step) {
    const int64_t middle = step.sizes[1], inner = step.sizes[2];
    return step.sizes[0] == 1 && middle * inner > 1 && middle * inner <= kLanes<T> && inner < kLanes<T>;
}

WEFT_INLINE int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

// False where an argument is read from its tensor, or what it has for a vector
// does not lie within one.
template <class T, class F>
__attribute__((noinline)) bool narrow_pairs(const ProgramStep& step, const Tile<T>& tile, const F& f) {
    constexpr int Lanes = kLanes<T>;
    const Argument<T> a = tile.argument(step, 0), b = tile.argument(step, 1);
    const int64_t middle = step.sizes[1], inner = step.sizes[2], size = middle * inner;
    const int64_t vectors = size / common_divisor(size, Lanes), n = size * tile.edges;
    if (a.places || b.places) return false;
    const Spread<T> one(a, middle, inner, vectors), two(b, middle, inner, vectors);
    if (!one.fits || !two.fits) return false;
    T* out = tile.arena + step.out;
    const T *x = a.base, *y = b.base;
    for (int64_t i = 0; i < n; x += one.advance, y += two.advance)
        for (int64_t v = 0; v < vectors && i < n; ++v, i += Lanes)
            store<Lanes>(out + i, f(permuted<T>(load<Lanes>(x + one.begin[v]), one.lanes[v]),
                                    permuted<T>(load<Lanes>(y + two.begin[v]), two.lanes[v])));
    return true;
}

// The sums of rows of two or four values, a vector of them at a time; in the
// order of all other sums over a width.
template <int Width, class T>
WEFT_INLINE void sum_narrow(const T* from, T* to, int64_t rows) {
    constexpr int Lanes = kLanes<T>;
    const auto pair = [&](const T* at) __attribute__((always_inline)) {
        return fold_pair<T, Lanes, Lanes / Width>(load<Lanes>(at), load<Lanes>(at + Lanes));
    };
    for (int64_t row = 0; row < rows; row += Lanes, from += Lanes * Width)
        if constexpr (Width == 2)
            store<Lanes>(to + row, pair(from));
        else
            store<Lanes>(to + row, fold_pair<T, Lanes, Lanes / 2>(pair(from), pair(from + 2 * Lanes)));
}
