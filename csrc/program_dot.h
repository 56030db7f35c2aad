// Products of a tile's values with matrices, for one instruction set (see
// each_isa.h).
#include "program_sparse.h"

template <int P, class T>
__attribute__((noinline)) void dot_block(const T* from, const T* panels, T* to, int64_t depth,
                                         int64_t columns, int64_t panel) {
    constexpr int Lanes = kLanes<T>;
    typedef Vec<T, Lanes> V;
    V sum[kRowsAtOnce][P] = {};
    for (int64_t k = 0; k < depth; ++k) {
        V weight[P];
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) weight[p] = load<Lanes>(panels + (p * depth + k) * Lanes);
#pragma GCC unroll 4
        for (int row = 0; row < kRowsAtOnce; ++row) {
            const V value = splat<Lanes>(from[row * depth + k]);
#pragma GCC unroll 4
            for (int p = 0; p < P; ++p) sum[row][p] += value * weight[p];
        }
    }
    // Row by row: what a narrow row writes past its end is the next one's.
#pragma GCC unroll 4
    for (int row = 0; row < kRowsAtOnce; ++row)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p)
            store<Lanes>(to + row * columns + panel_begin<T>(columns, panel + p), sum[row][p]);
}

// `between` is called with the operations of every block of rows. Where rows
// are `sparse`, the blocks whose values are mostly 0 go over the others alone.
template <int P, class T, class Between>
WEFT_INLINE void dot_panels(const T* from, const T* panels, T* to, int64_t rows, int64_t depth,
                            int64_t columns, int64_t panel, bool sparse, const Between& between) {
    const T* matrix = panels + panel * depth * kLanes<T>;
    for (int64_t row = 0; row < rows; row += kRowsAtOnce) {
        between(kRowsAtOnce * depth * P * kLanes<T>);
        const T* at = from + row * depth;
        if (!sparse || !sparse_block<P>(at, matrix, to + row * columns, depth, columns, panel))
            dot_block<P>(at, matrix, to + row * columns, depth, columns, panel);
    }
}

// to [rows, columns] = from [rows, depth] · matrix; rows are rounded up.
template <class T, class Between>
WEFT_INLINE void dot(const T* from, const T* panels, T* to, int64_t rows, int64_t depth, int64_t columns,
                     bool sparse, const Between& between) {
    const int64_t count = num_panels<T>(columns);
    int64_t panel = 0;
    for (; panel + kPanels <= count; panel += kPanels)
        dot_panels<kPanels>(from, panels, to, rows, depth, columns, panel, sparse, between);
    if constexpr (kPanels > 2)
        for (; panel + 2 <= count; panel += 2)
            dot_panels<2>(from, panels, to, rows, depth, columns, panel, sparse, between);
    for (; panel < count; ++panel)
        dot_panels<1>(from, panels, to, rows, depth, columns, panel, sparse, between);
}

// Adds four rows of aᵀ b, of P panels of b's columns, to `to`, whose rows are
// `stride` long.
template <int P, class T>
__attribute__((noinline)) void outer_block(const T* a, const T* b, T* to, int64_t rows, int64_t a_columns,
                                           int64_t columns, int64_t panel, int64_t stride) {
    constexpr int Lanes = kLanes<T>;
    typedef Vec<T, Lanes> V;
    V sum[kRowsAtOnce][P] = {};
    int64_t begin[P];
    for (int p = 0; p < P; ++p) begin[p] = panel_begin<T>(columns, panel + p);
    for (int64_t row = 0; row < rows; ++row, a += a_columns, b += columns) {
        V right[P];
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) right[p] = load<Lanes>(b + begin[p]);
#pragma GCC unroll 4
        for (int i = 0; i < kRowsAtOnce; ++i) {
            const V left = splat<Lanes>(a[i]);
#pragma GCC unroll 4
            for (int p = 0; p < P; ++p) sum[i][p] += left * right[p];
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRowsAtOnce; ++i)
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
            T* at = to + i * stride + (panel + p) * Lanes;
            store<Lanes>(at, load<Lanes>(at) + sum[i][p]);
        }
}

// Adds aᵀ b over rows to `to` [a_columns rounded up, panels of b's columns];
// after it, where a is `sparse`, lies as much again for the sum of these rows.
template <class T, class Between>
WEFT_INLINE void add_outer(const T* a, const T* b, T* to, int64_t rows, int64_t a_columns, int64_t columns,
                           bool sparse, const Between& between) {
    const int64_t count = num_panels<T>(columns), stride = count * kLanes<T>;
    if (sparse && mostly_zero(a, rows, a_columns) && finite(b, rows * columns)) {
        between(rows * a_columns * columns / 4);
        return add_sparse_outer(a, b, to, rows, a_columns, columns);
    }
    for (int64_t i = 0; i < a_columns; i += kRowsAtOnce, a += kRowsAtOnce, to += kRowsAtOnce * stride) {
        int64_t panel = 0;
        between(rows * kRowsAtOnce * columns);
        for (; panel + kPanels <= count; panel += kPanels)
            outer_block<kPanels>(a, b, to, rows, a_columns, columns, panel, stride);
        if constexpr (kPanels > 2)
            for (; panel + 2 <= count; panel += 2)
                outer_block<2>(a, b, to, rows, a_columns, columns, panel, stride);
        for (; panel < count; ++panel) outer_block<1>(a, b, to, rows, a_columns, columns, panel, stride);
    }
}

// Adds what add_outer left in `from` to a matrix [rows, columns].
template <class T>
void add_panels(const T* from, T* to, int64_t rows, int64_t columns) {
    const int64_t stride = num_panels<T>(columns) * kLanes<T>;
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t panel = 0; panel < num_panels<T>(columns); ++panel)
            for (int64_t begin = panel_begin<T>(columns, panel), column = panel ? panel * kLanes<T> : 0;
                 column < begin + kLanes<T> && column < columns; ++column)
                to[row * columns + column] += from[row * stride + panel * kLanes<T> + column - begin];
}
