// Products whose left side is mostly 0, as the gradient of an extreme is: only
// the other values are gone over. The sums are those of all values, in their
// order, as long as what a 0 would be multiplied with is finite.
//
// A matrix is read in panels of columns, a vector wide; where the columns are
// no multiple of the vector the last panel overlaps its neighbour, and of fewer
// columns than lanes the rest is 0.
#include "program_sums.h"

// Rows of a block: with the panels of a block, all its sums are in registers.
constexpr int kRowsAtOnce = 4;
constexpr int kPanels = kVectorBytes == 64 ? 4 : 2;

template <class T>
WEFT_INLINE int64_t num_panels(int64_t columns) {
    return (columns + kLanes<T> - 1) / kLanes<T>;
}
template <class T>
WEFT_INLINE int64_t panel_begin(int64_t columns, int64_t panel) {
    const int64_t begin = panel * kLanes<T>, last = columns - kLanes<T>;
    return begin < last ? begin : last < 0 ? 0 : last;
}

// The panels of a matrix [rows, columns] one after the other; `transposed`: of
// [columns, rows].
template <class T>
void pack_panels(const T* matrix, bool transposed, int64_t rows, int64_t columns, T* to) {
    for (int64_t panel = 0; panel < num_panels<T>(columns); ++panel) {
        const int64_t begin = panel_begin<T>(columns, panel);
        for (int64_t row = 0; row < rows; ++row)
            for (int64_t column = begin; column < begin + kLanes<T>; ++column)
                *to++ = column >= columns ? T{0}
                        : transposed      ? matrix[column * rows + row]
                                          : matrix[row * columns + column];
    }
}

// Whether all of n values are finite.
template <class T>
bool finite(const T* values, int64_t n) {
    constexpr int Lanes = kLanes<T>;
    Vec<T, Lanes> rest = {};  // of x - x: 0, or not a number
    int64_t i = 0;
    for (; i + Lanes <= n; i += Lanes) {
        const Vec<T, Lanes> x = load<Lanes>(values + i);
        rest += x - x;
    }
    T last = 0;
    for (; i < n; ++i) last += values[i] - values[i];
    for (int lane = 0; lane < Lanes; ++lane) last += rest[lane];
    return last == T{0};
}

// A bit for each lane that is not 0.
template <class T>
WEFT_INLINE uint64_t lanes_set(const Vec<T, kLanes<T>>& values) {
#ifdef WEFT_TARGETS
    if constexpr (kVectorBytes == 64 && sizeof(T) == 8)
        return _mm512_cmp_pd_mask(bits_as<__m512d>(values), _mm512_setzero_pd(), _CMP_NEQ_UQ);
    else if constexpr (kVectorBytes == 64)
        return _mm512_cmp_ps_mask(bits_as<__m512>(values), _mm512_setzero_ps(), _CMP_NEQ_UQ);
    else if constexpr (kVectorBytes == 32 && sizeof(T) == 8)
        return _mm256_movemask_pd(_mm256_cmp_pd(bits_as<__m256d>(values), _mm256_setzero_pd(), _CMP_NEQ_UQ));
    else if constexpr (kVectorBytes == 32)
        return _mm256_movemask_ps(_mm256_cmp_ps(bits_as<__m256>(values), _mm256_setzero_ps(), _CMP_NEQ_UQ));
#endif
    uint64_t bits = 0;
    for (int lane = 0; lane < kLanes<T>; ++lane) bits |= uint64_t{values[lane] != T{0}} << lane;
    return bits;
}

constexpr int64_t kWord = 64;

// Which of `count` values, 64 at most, are not 0.
template <class T>
WEFT_INLINE uint64_t not_zero(const T* from, int64_t count) {
    uint64_t bits = 0;
    for (int64_t i = 0; i < count; i += kLanes<T>) bits |= lanes_set<T>(load<kLanes<T>>(from + i)) << i;
    return count < kWord ? bits & ((uint64_t{1} << count) - 1) : bits;
}

// Calls body(place) for every value of a row that is not 0.
template <class T, class Body>
WEFT_INLINE void each_not_zero(const T* from, int64_t count, const Body& body) {
    for (int64_t begin = 0; begin < count; begin += kWord)
        for (uint64_t bits = not_zero(from + begin, count - begin < kWord ? count - begin : kWord); bits;
             bits &= bits - 1)
            body(begin + __builtin_ctzll(bits));
}

// Whether going over what is not 0 is less work: a value alone takes longer
// than one of a block.
template <class T>
WEFT_INLINE bool mostly_zero(const T* from, int64_t rows, int64_t columns) {
    int64_t count = 0;
    for (int64_t i = 0; i < rows * columns; i += kWord) {
        const int64_t rest = rows * columns - i;
        count += __builtin_popcountll(not_zero(from + i, rest < kWord ? rest : kWord));
    }
    return 4 * count <= rows * columns;
}

// The products of a block of rows with P panels; false where most are not 0.
template <int P, class T>
__attribute__((noinline)) bool sparse_block(const T* from, const T* panels, T* to, int64_t depth,
                                            int64_t columns, int64_t panel) {
    constexpr int Lanes = kLanes<T>;
    if (!mostly_zero(from, kRowsAtOnce, depth)) return false;
    for (int row = 0; row < kRowsAtOnce; ++row, from += depth, to += columns) {
        Vec<T, Lanes> sum[P] = {};
        each_not_zero(from, depth, [&](int64_t k) __attribute__((always_inline)) {
            const Vec<T, Lanes> value = splat<Lanes>(from[k]);
#pragma GCC unroll 4
            for (int p = 0; p < P; ++p) sum[p] += value * load<Lanes>(panels + (p * depth + k) * Lanes);
        });
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) store<Lanes>(to + panel_begin<T>(columns, panel + p), sum[p]);
    }
    return true;
}

// Adds P panels of aᵀ b to `to`.
template <int P, class T>
__attribute__((noinline)) void sparse_panels(const T* a, const T* b, T* to, int64_t rows, int64_t a_columns,
                                             int64_t columns, int64_t panel, int64_t stride) {
    constexpr int Lanes = kLanes<T>;
    for (int64_t row = 0; row < rows; ++row, a += a_columns, b += columns) {
        Vec<T, Lanes> right[P];
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) right[p] = load<Lanes>(b + panel_begin<T>(columns, panel + p));
        each_not_zero(a, a_columns, [&](int64_t k) __attribute__((always_inline)) {
            const Vec<T, Lanes> left = splat<Lanes>(a[k]);
            T* at = to + k * stride + panel * Lanes;
#pragma GCC unroll 4
            for (int p = 0; p < P; ++p)
                store<Lanes>(at + p * Lanes, load<Lanes>(at + p * Lanes) + left * right[p]);
        });
    }
}

// Adds aᵀ b over rows to `to`: the sum of these rows is made behind it first,
// as it is where nothing is left out.
template <class T>
__attribute__((noinline)) void add_sparse_outer(const T* a, const T* b, T* to, int64_t rows,
                                                int64_t a_columns, int64_t columns) {
    const int64_t count = num_panels<T>(columns), stride = count * kLanes<T>;
    const int64_t size = (a_columns + kRowsAtOnce - 1) / kRowsAtOnce * kRowsAtOnce * stride;
    T* sum = to + size;
    for (int64_t i = 0; i < size; ++i) sum[i] = 0;
    int64_t panel = 0;
    for (; panel + kPanels <= count; panel += kPanels)
        sparse_panels<kPanels>(a, b, sum, rows, a_columns, columns, panel, stride);
    for (; panel < count; ++panel) sparse_panels<1>(a, b, sum, rows, a_columns, columns, panel, stride);
    for (int64_t i = 0; i < size; ++i) to[i] += sum[i];
}
