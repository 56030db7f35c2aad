// Sums over edges for one instruction set (see each_isa.h).
//
// A row's sum is held in registers, up to kPanel vectors at a time, so that x is read once and out written
// once. Source rows are prefetched some edges ahead, across the ends of rows. What multiplies an edge
// (weight, source scale) is gathered into a small buffer first, so one loop serves every variant; a plain sum
// multiplies by ones, which costs nothing beside the reads.

// Accumulators of a panel. 16 of the 32 registers of AVX-512 were slower on wide rows than two panels of 8.
constexpr int kPanel = 8;

// Edges ahead that a source row of a panel of this many bytes is prefetched: fewer leave the memory idle,
// more push rows out of L1 again.
constexpr int64_t edges_ahead(int64_t bytes) { return bytes >= 512 ? 8 : bytes >= 256 ? 12 : 16; }

// Sums K vectors of the source row of each edge: vectors 0 … K - 2 follow each other, the last begins `last`
// values after the first and overlaps its neighbour where the width is no multiple of the vector.
template <int Lanes, int K, class T, class I>
__attribute__((noinline)) void sum_panel(const I* indices, const I* indices_end, int64_t degree,
                                         const Acc<T>* factors, const T* x, int64_t width, Acc<T>* out,
                                         int64_t last, Acc<T> scale) {
    constexpr int64_t kAhead = edges_ahead(K * Lanes * sizeof(T));
    Vec<Acc<T>, Lanes> sums[K] = {};
    for (int64_t e = 0; e < degree; ++e) {
        const I* ahead = indices + e + kAhead < indices_end ? indices + e + kAhead : indices_end - 1;
        prefetch(x + static_cast<int64_t>(*ahead) * width, K * Lanes * sizeof(T));
        const T* row = x + static_cast<int64_t>(indices[e]) * width;
        const Vec<Acc<T>, Lanes> factor = splat<Lanes>(factors[e]);
#pragma GCC unroll 16
        for (int k = 0; k < K - 1; ++k) sums[k] += factor * read<Lanes>(row + k * Lanes);
        sums[K - 1] += factor * read<Lanes>(row + last);
    }
    const Vec<Acc<T>, Lanes> scales = splat<Lanes>(scale);
#pragma GCC unroll 16
    for (int k = 0; k < K - 1; ++k) store<Lanes>(out + k * Lanes, sums[k] * scales);
    store<Lanes>(out + last, sums[K - 1] * scales);
}

// Sums at most kPanel vectors of columns: the widest panel that fits, so a caller asks again for the rest.
// Returns how many columns were done.
template <int Lanes, class T, class I>
int64_t sum_some(const I* indices, const I* indices_end, int64_t degree, const Acc<T>* factors, const T* x,
                 int64_t width, Acc<T>* out, int64_t columns, Acc<T> scale) {
    constexpr bool whole = Lanes == kVectorBytes / sizeof(Acc<T>);
    if constexpr (Lanes > 1) {
        if (columns < Lanes)
            return sum_some<Lanes / 2>(indices, indices_end, degree, factors, x, width, out, columns, scale);
    }
    const int64_t vectors = (columns + Lanes - 1) / Lanes;
#define WEFT_PANEL(K)                                                                           \
    {                                                                                           \
        const int64_t last = vectors <= K ? columns - Lanes : (K - 1) * Lanes;                  \
        sum_panel<Lanes, K>(indices, indices_end, degree, factors, x, width, out, last, scale); \
        return vectors <= K ? columns : K * Lanes;                                              \
    }
    if constexpr (whole) {
        if (vectors >= kPanel) WEFT_PANEL(kPanel);
        if (vectors >= 4) WEFT_PANEL(4);
        if (vectors == 3) WEFT_PANEL(3);
        if (vectors == 1) WEFT_PANEL(1);
    }
    WEFT_PANEL(2);  // of narrow vectors there are never more; a single one is computed twice
#undef WEFT_PANEL
}

// Sums `columns` columns of the source rows and writes them, scaled, in the type of `out`.
template <class T, class O, class I>
WEFT_INLINE void sum_columns(const I* indices, const I* indices_end, int64_t degree, const Acc<T>* factors,
                             const T* x, int64_t width, O* out, int64_t columns, Acc<T> scale) {
    constexpr int Lanes = kVectorBytes / sizeof(Acc<T>);
    for (int64_t done = 0; done < columns;) {
        if constexpr (Same<O, Acc<T>>::value) {
            done += sum_some<Lanes>(indices, indices_end, degree, factors, x + done, width, out + done,
                                    columns - done, scale);
        } else {
            Acc<T> panel[kPanel * Lanes];
            const int64_t some = sum_some<Lanes>(indices, indices_end, degree, factors, x + done, width,
                                                 panel, columns - done, scale);
            narrow_all(panel, out + done, some);
            done += some;
        }
    }
}

// Fills `factors` with what multiplies each of the edges begin … end for one head.
template <class A, class I>
WEFT_INLINE void fill_factors(const Spmm& call, int64_t begin, int64_t end, int64_t head, A* factors) {
    const A* weight = static_cast<const A*>(call.weight);
    const A* scale = static_cast<const A*>(call.src_scale);
    const I* edges = static_cast<const I*>(call.edges);
    const I* indices = static_cast<const I*>(call.indices);
    if (!weight) {
        for (int64_t e = begin; e < end; ++e) factors[e - begin] = scale[indices[e]];
        return;
    }
    for (int64_t e = begin; e < end; ++e) {
        const int64_t place = edges ? static_cast<int64_t>(edges[e]) : e;
        const A factor = weight[place * call.heads + head];
        factors[e - begin] = scale ? factor * scale[indices[e]] : factor;
    }
}

// Sums the edges begin … end (at most kHub) into all columns of `out`.
template <class T, class O, class I>
WEFT_INLINE void sum_edges(const Spmm& call, int64_t begin, int64_t end, O* out, Acc<T> scale) {
    const I* indices = static_cast<const I*>(call.indices) + begin;
    const I* indices_end = static_cast<const I*>(call.indices) + call.num_edges;
    const T* x = static_cast<const T*>(call.x);
    if (!call.weight && !call.src_scale)
        return sum_columns(indices, indices_end, end - begin, static_cast<const Acc<T>*>(call.ones), x,
                           call.width, out, call.width, scale);
    Acc<T> factors[kHub];
    const int64_t dim = call.width / call.heads;
    for (int64_t head = 0; head < call.heads; ++head) {
        fill_factors<Acc<T>, I>(call, begin, end, head, factors);
        sum_columns(indices, indices_end, end - begin, static_cast<const Acc<T>*>(factors), x + head * dim,
                    call.width, out + head * dim, dim, scale);
    }
}

template <class A>
WEFT_INLINE A row_scale(const Spmm& call, int64_t row) {
    A scale = call.dst_scale ? static_cast<const A*>(call.dst_scale)[row] : A{1};
    if (call.mean) {
        const int64_t degree = call.indptr[row + 1] - call.indptr[row];
        scale = degree ? scale * (A{1} / static_cast<A>(degree)) : A{0};
    }
    return scale;
}

// The rows first … last, except hubs.
template <class T, class I>
void sum_rows(T, I, const Spmm& call, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
        const int64_t begin = call.indptr[row], end = call.indptr[row + 1];
        if (end - begin > kHub) continue;
        T* out = static_cast<T*>(call.out) + row * call.width;
        sum_edges<T, T, I>(call, begin, end, out, row_scale<Acc<T>>(call, row));
    }
}

// A part of a hub row, unscaled, in the accumulator's type.
template <class T, class I, class A>
void sum_piece(T, I, const Spmm& call, const Piece& piece, A* part) {
    sum_edges<T, A, I>(call, piece.begin, piece.end, part, A{1});
}

// Adds the parts of a hub row in their order.
template <class T, class A>
void merge_pieces(T, const Spmm& call, int64_t row, const A* parts, int64_t num_parts) {
    const A scale = row_scale<A>(call, row);
    T* out = static_cast<T*>(call.out) + row * call.width;
    for (int64_t column = 0; column < call.width; ++column) {
        A sum = 0;
        for (int64_t part = 0; part < num_parts; ++part) sum += parts[part * call.width + column];
        write_one(out + column, sum * scale);
    }
}
