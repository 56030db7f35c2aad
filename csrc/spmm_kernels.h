// Sums over edges for one instruction set (see each_isa.h).
//
// A row's sum is held in registers, up to kPanel vectors at a time, so that x is read once and out written
// once. Source rows are prefetched some edges ahead, across the ends of rows. What multiplies an edge
// (weight, source scale) is gathered into a small buffer first, so one loop serves every variant; a plain sum
// multiplies by ones, which costs nothing beside the reads.

// Accumulators of a panel. 16 of the 32 registers of AVX-512 were slower on wide rows than two panels of 8.
constexpr int kPanel = 8;

// Edges whose source rows are read panel by panel before the next ones: of rows wider than a panel, what the
// hardware has fetched past the first panel must still be in L2 when its turn comes. All edges of a block at
// once took 1.4 times as long at 602 columns.
constexpr int64_t kGroup = 128;

// Edges ahead that a source row of a panel of this many bytes is prefetched: fewer leave the memory idle,
// more push rows out of L1 again.
constexpr int64_t edges_ahead(int64_t bytes) { return bytes >= 512 ? 8 : bytes >= 256 ? 12 : 16; }

template <class A>
WEFT_INLINE A row_scale(const Spmm& call, int64_t row) {
    A scale = call.dst_scale ? static_cast<const A*>(call.dst_scale)[row] : A{1};
    if (call.mean) {
        const int64_t degree = call.indptr[row + 1] - call.indptr[row];
        scale = degree ? scale * (A{1} / static_cast<A>(degree)) : A{0};
    }
    return scale;
}

// What one call of a panel reads and writes, at its first column.
template <class T, class O, class I>
struct Panel {
    const I *indices, *indices_end;
    const Acc<T>* factors;  // of the edges to be summed, one after the other
    int64_t step;           // 1, or 0 where one factor serves all edges
    const T* x;
    O* out;  // of row 0
    int64_t width;
};

// The sum over edges begin … end of K vectors of the source rows: vectors 0 … K - 2 follow each other, the
// last begins `last` values after the first and overlaps its neighbour where the width is no multiple of the
// vector.
template <int Lanes, int K, class T, class O, class I>
WEFT_INLINE void sum_edges(const Panel<T, O, I>& panel, int64_t begin, int64_t end, const Acc<T>* factors,
                           O* out, int64_t last, Acc<T> scale) {
    constexpr int64_t kAhead = edges_ahead(K * Lanes * sizeof(T));
    Vec<Acc<T>, Lanes> sums[K] = {};
    for (const I *at = panel.indices + begin, *stop = panel.indices + end; at < stop; ++at) {
        const I* ahead = at + kAhead < panel.indices_end ? at + kAhead : panel.indices_end - 1;
        prefetch(panel.x + static_cast<int64_t>(*ahead) * panel.width, K * Lanes * sizeof(T));
        const T* row = panel.x + static_cast<int64_t>(*at) * panel.width;
        const Vec<Acc<T>, Lanes> factor = splat<Lanes>(*factors);
        factors += panel.step;
#pragma GCC unroll 16
        for (int k = 0; k < K - 1; ++k) sums[k] += factor * read<Lanes>(row + k * Lanes);
        sums[K - 1] += factor * read<Lanes>(row + last);
    }
    const Vec<Acc<T>, Lanes> scales = splat<Lanes>(scale);
#pragma GCC unroll 16
    for (int k = 0; k < K - 1; ++k) write<Lanes>(out + k * Lanes, sums[k] * scales);
    write<Lanes>(out + last, sums[K - 1] * scales);
}

// One panel of the rows first … last, except hubs; or, where `piece` is given, of that piece of a hub,
// unscaled. The loop over rows is in here because many rows are short: a call for each would cost more than
// its sum.
template <int Lanes, int K, class T, class O, class I>
__attribute__((noinline)) void sum_panel(const Spmm& call, const Panel<T, O, I>& panel, int64_t first,
                                         int64_t last_row, const Piece* piece, int64_t last) {
    if (piece)
        return sum_edges<Lanes, K>(panel, piece->begin, piece->end, panel.factors, panel.out, last,
                                   Acc<T>{1});
    const Acc<T>* factors = panel.factors;
    for (int64_t row = first; row < last_row; ++row) {
        const int64_t begin = call.indptr[row], end = call.indptr[row + 1];
        if (end - begin > kHub) continue;
        sum_edges<Lanes, K>(panel, begin, end, factors, panel.out + row * panel.width, last,
                            row_scale<Acc<T>>(call, row));
        factors += panel.step * (end - begin);
    }
}

// Sums the widest panel that fits into `columns` columns and returns how many columns that were.
template <int Lanes, class T, class O, class I>
int64_t sum_some(const Spmm& call, const Panel<T, O, I>& panel, int64_t first, int64_t last_row,
                 const Piece* piece, int64_t columns) {
    if constexpr (Lanes > 1) {
        if (columns < Lanes) return sum_some<Lanes / 2>(call, panel, first, last_row, piece, columns);
    }
    const int64_t vectors = (columns + Lanes - 1) / Lanes;
#define WEFT_PANEL(K)                                                          \
    {                                                                          \
        const int64_t last = vectors <= K ? columns - Lanes : (K - 1) * Lanes; \
        sum_panel<Lanes, K>(call, panel, first, last_row, piece, last);        \
        return vectors <= K ? columns : K * Lanes;                             \
    }
    if constexpr (Lanes == kVectorBytes / sizeof(Acc<T>)) {
        if (vectors >= kPanel) WEFT_PANEL(kPanel);
        if (vectors >= 4) WEFT_PANEL(4);
        if (vectors == 3) WEFT_PANEL(3);
        if (vectors == 1) WEFT_PANEL(1);
    }
    WEFT_PANEL(2);  // of narrow vectors there are never more; a single one is computed twice
#undef WEFT_PANEL
}

// Appends what multiplies the edges begin … end for one head.
template <class A, class I>
WEFT_INLINE A* fill_factors(const Spmm& call, int64_t begin, int64_t end, int64_t head, A* factors) {
    const A* weight = static_cast<const A*>(call.weight);
    const A* scale = static_cast<const A*>(call.src_scale);
    const I* edges = static_cast<const I*>(call.edges);
    const I* indices = static_cast<const I*>(call.indices);
    if (!weight) {
        for (int64_t e = begin; e < end; ++e) *factors++ = scale[indices[e]];
        return factors;
    }
    for (int64_t e = begin; e < end; ++e) {
        const int64_t place = edges ? static_cast<int64_t>(edges[e]) : e;
        const A factor = weight[place * call.heads + head];
        *factors++ = scale ? factor * scale[indices[e]] : factor;
    }
    return factors;
}

// `columns` columns of the rows first … last or of a piece, panel by panel.
template <class T, class O, class I>
void sum_columns(const Spmm& call, Panel<T, O, I> panel, int64_t first, int64_t last, const Piece* piece,
                 int64_t columns) {
    constexpr int Lanes = kVectorBytes / sizeof(Acc<T>);
    for (int64_t done = 0; done < columns;) {
        const int64_t some = sum_some<Lanes>(call, panel, first, last, piece, columns - done);
        panel.x += some;
        panel.out += some;
        done += some;
    }
}

// The same for rows wider than a panel: some rows at a time.
template <class T, class O, class I>
void sum_groups(const Spmm& call, Panel<T, O, I> panel, int64_t first, int64_t last, int64_t columns) {
    for (int64_t row = first; row < last;) {
        int64_t end = row, edges = 0;
        for (; end < last && edges < kGroup; ++end) {
            const int64_t degree = call.indptr[end + 1] - call.indptr[end];
            edges += degree <= kHub ? degree : 0;
        }
        sum_columns(call, panel, row, end, nullptr, columns);
        panel.factors += edges * panel.step;
        row = end;
    }
}

// All columns of the rows first … last or of a piece; `out` is row 0, or the part that the piece goes to.
template <class T, class O, class I>
WEFT_INLINE void sum_all(const Spmm& call, int64_t first, int64_t last, const Piece* piece, O* out) {
    const I* indices = static_cast<const I*>(call.indices);
    const Acc<T> one = 1;
    Panel<T, O, I> panel{indices,   indices + call.num_edges, &one, 0, static_cast<const T*>(call.x), out,
                         call.width};
    Acc<T> factors[kMaxBlock];
    const bool plain = !call.weight && !call.src_scale;
    const int64_t dim = call.width / call.heads;
    for (int64_t head = 0; head < call.heads; ++head) {
        if (!plain) {
            panel.factors = factors;
            panel.step = 1;
            Acc<T>* to = factors;
            if (piece) fill_factors<Acc<T>, I>(call, piece->begin, piece->end, head, to);
            for (int64_t row = first; row < last; ++row)
                if (call.indptr[row + 1] - call.indptr[row] <= kHub)
                    to = fill_factors<Acc<T>, I>(call, call.indptr[row], call.indptr[row + 1], head, to);
        }
        if (piece || dim * sizeof(Acc<T>) <= kPanel * kVectorBytes)
            sum_columns(call, panel, first, last, piece, dim);
        else
            sum_groups(call, panel, first, last, dim);
        panel.x += dim;
        panel.out += dim;
    }
}

// The rows first … last of a block, except hubs.
template <class T, class I>
void sum_rows(T, I, const Spmm& call, int64_t first, int64_t last) {
    sum_all<T, T, I>(call, first, last, nullptr, static_cast<T*>(call.out));
}

// A part of a hub row, unscaled, in the accumulator's type.
template <class T, class I, class A>
void sum_piece(T, I, const Spmm& call, const Piece& piece, A* part) {
    sum_all<T, A, I>(call, 0, 0, &piece, part);
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
