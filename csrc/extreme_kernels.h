// The largest or smallest value over edges and how many attain it, for one instruction set (see each_isa.h).

constexpr int64_t kAhead = 8;

// NaN beats every number.
template <class V>
WEFT_INLINE auto beats(const V& a, const V& b) {
    return (a > b) | ((a != a) & (b == b));
}
template <class V>
WEFT_INLINE auto equals(const V& a, const V& b) {
    return (a == b) | ((a != a) & (b != b));
}

// K vectors of columns of one row; the last begins `last` values after the first (see spmm_kernels.h). sign
// is 1 for the largest value; -1 looks for the largest of the negated ones, the smallest.
template <int Lanes, int K, class T, class I>
__attribute__((noinline)) void extreme_panel(const I* indices, const I* indices_end, int64_t degree,
                                             const T* x, int64_t width, T* value, int32_t* count,
                                             int64_t last, Acc<T> sign) {
    typedef Vec<AccInt<T>, Lanes> Int;
    Vec<Acc<T>, Lanes> best[K] = {};
    Int ties[K] = {};
    const Vec<Acc<T>, Lanes> signs = splat<Lanes>(sign);
    for (int64_t e = 0; e < degree; ++e) {
        const I* ahead = indices + e + kAhead < indices_end ? indices + e + kAhead : indices_end - 1;
        prefetch(x + static_cast<int64_t>(*ahead) * width, K * Lanes * sizeof(T));
        const T* row = x + static_cast<int64_t>(indices[e]) * width;
#pragma GCC unroll 8
        for (int k = 0; k < K; ++k) {
            const Vec<Acc<T>, Lanes> other = read<Lanes>(row + (k < K - 1 ? k * Lanes : last)) * signs;
            const Int better = e == 0 ? ~Int{} : bits_as<Int>(beats(other, best[k]));
            const Int equal = bits_as<Int>(equals(other, best[k]));
            best[k] = better ? other : best[k];
            ties[k] = better ? Int{} + 1 : ties[k] - equal;
        }
    }
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) {
        const int64_t column = k < K - 1 ? k * Lanes : last;
        write<Lanes>(value + column, best[k] * signs);
        store<Lanes>(count + column, __builtin_convertvector(ties[k], Vec<int32_t, Lanes>));
    }
}

template <int Lanes, class T, class I>
void extreme_columns(const I* indices, const I* indices_end, int64_t degree, const T* x, int64_t width,
                     T* value, int32_t* count, Acc<T> sign) {
    if constexpr (Lanes > 1) {
        if (width < Lanes)
            return extreme_columns<Lanes / 2>(indices, indices_end, degree, x, width, value, count, sign);
    }
    int64_t done = 0, vectors = (width + Lanes - 1) / Lanes;
#define WEFT_PANEL(K)                                                                                      \
    {                                                                                                      \
        const int64_t last = vectors <= K ? width - Lanes - done : (K - 1) * Lanes;                        \
        extreme_panel<Lanes, K>(indices, indices_end, degree, x + done, width, value + done, count + done, \
                                last, sign);                                                               \
        done += K * Lanes;                                                                                 \
        vectors -= K;                                                                                      \
    }
    if constexpr (Lanes == kVectorBytes / sizeof(Acc<T>)) {
        while (vectors >= 4) WEFT_PANEL(4);
        if (vectors >= 2) WEFT_PANEL(2);
        if (vectors == 1) WEFT_PANEL(1);
    } else {
        WEFT_PANEL(2);  // of narrow vectors there are never more; a single one is computed twice
    }
#undef WEFT_PANEL
}

template <class T, class I>
void extreme_edges(const Extreme& call, bool maximum, int64_t begin, int64_t end, T* value, int32_t* count) {
    constexpr int Lanes = kVectorBytes / sizeof(Acc<T>);
    const I* indices = static_cast<const I*>(call.indices);
    extreme_columns<Lanes>(indices + begin, indices + call.num_edges, end - begin,
                           static_cast<const T*>(call.x), call.width, value, count,
                           maximum ? Acc<T>{1} : Acc<T>{-1});
}

template <class T, class I>
void extreme_rows(T, I, const Extreme& call, bool maximum, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
        const int64_t begin = call.indptr[row], end = call.indptr[row + 1];
        if (end - begin > kHub) continue;
        extreme_edges<T, I>(call, maximum, begin, end, static_cast<T*>(call.value) + row * call.width,
                            call.count + row * call.width);
    }
}

template <class T, class I>
void extreme_piece(T*, I, const Extreme& call, bool maximum, const Piece& piece, T* value, int32_t* count) {
    extreme_edges<T, I>(call, maximum, piece.begin, piece.end, value, count);
}

// Merges the parts of a hub row: the better value, the counts of equal ones added.
template <class T>
void extreme_merge(const Extreme& call, bool maximum, int64_t row, const T* values, const int32_t* counts,
                   int64_t num_parts) {
    for (int64_t column = 0; column < call.width; ++column) {
        typedef Vec<Acc<T>, 1> One;
        One best = read<1>(values + column);
        int32_t count = counts[column];
        for (int64_t part = 1; part < num_parts; ++part) {
            const One other = read<1>(values + part * call.width + column);
            const int32_t ties = counts[part * call.width + column];
            const bool better = maximum ? beats(other, best)[0] : beats(-other, -best)[0];
            if (better)
                best = other, count = ties;
            else if (equals(other, best)[0])
                count += ties;
        }
        write<1>(static_cast<T*>(call.value) + row * call.width + column, best);
        call.count[row * call.width + column] = count;
    }
}

// gradient / count for rows first … last, in the accumulator's type.
template <class T, class A>
void share_rows(const T* grad, const int32_t* count, A* share, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
        share[i] = read_one(grad + i) / static_cast<A>(count[i] > 1 ? count[i] : 1);
}

template <int Lanes, int K, class T, class I>
__attribute__((noinline)) void shares_panel(const I* indices, const I* indices_end, int64_t degree,
                                            const T* x, const T* value, const Acc<T>* share, int64_t width,
                                            Acc<T>* out, int64_t last) {
    typedef Vec<Acc<T>, Lanes> V;
    V own[K], sums[K] = {};
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) own[k] = read<Lanes>(x + (k < K - 1 ? k * Lanes : last));
    for (int64_t e = 0; e < degree; ++e) {
        const I* ahead = indices + e + kAhead < indices_end ? indices + e + kAhead : indices_end - 1;
        prefetch(value + static_cast<int64_t>(*ahead) * width, K * Lanes * sizeof(T));
        prefetch(share + static_cast<int64_t>(*ahead) * width, K * Lanes * sizeof(Acc<T>));
        const int64_t at = static_cast<int64_t>(indices[e]) * width;
#pragma GCC unroll 8
        for (int k = 0; k < K; ++k) {
            const int64_t column = k < K - 1 ? k * Lanes : last;
            const V other = read<Lanes>(value + at + column);
            sums[k] += equals(own[k], other) ? load<Lanes>(share + at + column) : V{};
        }
    }
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) store<Lanes>(out + (k < K - 1 ? k * Lanes : last), sums[k]);
}

// Sums at most 4 vectors of columns and returns how many columns were done.
template <int Lanes, class T, class I>
int64_t shares_some(const I* indices, const I* indices_end, int64_t degree, const T* x, const T* value,
                    const Acc<T>* share, int64_t width, Acc<T>* out, int64_t columns) {
    if constexpr (Lanes > 1) {
        if (columns < Lanes)
            return shares_some<Lanes / 2>(indices, indices_end, degree, x, value, share, width, out, columns);
    }
    const int64_t vectors = (columns + Lanes - 1) / Lanes;
#define WEFT_PANEL(K)                                                                            \
    {                                                                                            \
        const int64_t last = vectors <= K ? columns - Lanes : (K - 1) * Lanes;                   \
        shares_panel<Lanes, K>(indices, indices_end, degree, x, value, share, width, out, last); \
        return vectors <= K ? columns : K * Lanes;                                               \
    }
    if constexpr (Lanes == kVectorBytes / sizeof(Acc<T>)) {
        if (vectors >= 4) WEFT_PANEL(4);
        if (vectors == 1) WEFT_PANEL(1);
    }
    WEFT_PANEL(2);
#undef WEFT_PANEL
}

// Sums over edges begin … end of row, whose own values are compared with its destinations'.
template <class T, class I, class O>
void shares_edges(T*, I, const ExtremeBackward& call, int64_t row, int64_t begin, int64_t end, O* out) {
    constexpr int Lanes = kVectorBytes / sizeof(Acc<T>);
    const I *indices = static_cast<const I*>(call.indices), *indices_end = indices + call.num_edges;
    const T *x = static_cast<const T*>(call.x) + row * call.width, *value = static_cast<const T*>(call.value);
    const Acc<T>* share = static_cast<const Acc<T>*>(call.share);
    for (int64_t done = 0; done < call.width;) {
        Acc<T> panel[4 * Lanes];
        const int64_t some =
            shares_some<Lanes>(indices + begin, indices_end, end - begin, x + done, value + done,
                               share + done, call.width, panel, call.width - done);
        for (int64_t i = 0; i < some; ++i) write_one(out + done + i, panel[i]);
        done += some;
    }
}

template <class T, class I>
void shares_rows(T* out, I index, const ExtremeBackward& call, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
        const int64_t begin = call.indptr[row], end = call.indptr[row + 1];
        if (end - begin <= kHub) shares_edges(out, index, call, row, begin, end, out + row * call.width);
    }
}

template <class T, class A>
void shares_merge(T* out, const A* parts, int64_t width, int64_t num_parts) {
    for (int64_t column = 0; column < width; ++column) {
        A sum = 0;
        for (int64_t part = 0; part < num_parts; ++part) sum += parts[part * width + column];
        write_one(out + column, sum);
    }
}
