// Products of a tile's values with matrices, for one instruction set (see
// each_isa.h).
//
// A matrix is read in panels of columns, a vector wide; where the columns are
// no multiple of the vector the last panel overlaps its neighbour, and of fewer
// columns than lanes the rest is 0.
#include "program_steps.h"

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

// `between` is called with the operations of every block of rows.
template <int P, class T, class Between>
WEFT_INLINE void dot_panels(const T* from, const T* panels, T* to, int64_t rows, int64_t depth,
                            int64_t columns, int64_t panel, const Between& between) {
    for (int64_t row = 0; row < rows; row += kRowsAtOnce) {
        between(kRowsAtOnce * depth * P * kLanes<T>);
        dot_block<P>(from + row * depth, panels + panel * depth * kLanes<T>, to + row * columns, depth,
                     columns, panel);
    }
}

// to [rows, columns] = from [rows, depth] · matrix; rows are rounded up.
template <class T, class Between>
WEFT_INLINE void dot(const T* from, const T* panels, T* to, int64_t rows, int64_t depth, int64_t columns,
                     const Between& between) {
    const int64_t count = num_panels<T>(columns);
    int64_t panel = 0;
    for (; panel + kPanels <= count; panel += kPanels)
        dot_panels<kPanels>(from, panels, to, rows, depth, columns, panel, between);
    if constexpr (kPanels > 2)
        for (; panel + 2 <= count; panel += 2)
            dot_panels<2>(from, panels, to, rows, depth, columns, panel, between);
    for (; panel < count; ++panel) dot_panels<1>(from, panels, to, rows, depth, columns, panel, between);
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

// Adds aᵀ b over rows to `to` [a_columns rounded up, panels of b's columns].
template <class T, class Between>
WEFT_INLINE void add_outer(const T* a, const T* b, T* to, int64_t rows, int64_t a_columns, int64_t columns,
                           const Between& between) {
    const int64_t count = num_panels<T>(columns), stride = count * kLanes<T>;
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
