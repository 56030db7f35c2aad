// Loops over the rows that the edges of one destination (or source) point at. Part of attention_kernels.h.
//
// A list of n edges is given by `rows`, the rows of a table x to read; every list can be read kListEnd
// entries past its end, so that prefetching runs on into the next list. Edge values are [n, H].

constexpr int64_t kAhead = 8;      // edges between prefetching a row of features and reading it
constexpr int64_t kFarAhead = 32;  // the same for a few numbers, which are done with sooner
constexpr int64_t kListEnd = 32;

template <class T>
WEFT_INLINE void prefetch_row(const T* row, int64_t count) {
    const char* at = reinterpret_cast<const char*>(row);
    for (int64_t byte = 0; byte < count * static_cast<int64_t>(sizeof(T)); byte += 64)
        __builtin_prefetch(at + byte);
}

template <class T>
constexpr int widest() {
    return WEFT_VECTOR_BYTES / sizeof(T);
}

// ---- sum over edges of w[e, h] * x[row], for NV vectors of the row; with Dual a second sum with weights w2.
// VPH vectors belong to a head; 8 means that all NV do.
template <class T, int W, int NV, int VPH, bool Dual>
void add_panel(const T* x, int64_t width, const int64_t* rows, int64_t n, const T* w, const T* w2,
               int64_t heads, T* to, T* to2) {
    Vec<T, W> sum[NV], sum2[NV];
    for (int j = 0; j < NV; j++) {
        sum[j] = load<W>(to + j * W);
        if (Dual) sum2[j] = load<W>(to2 + j * W);
    }
    for (int64_t i = 0; i < n; i++) {
        const T* row = x + rows[i] * width;
        const T* next = x + rows[i + kAhead] * width;
        for (int j = 0; j < NV * W * static_cast<int>(sizeof(T)); j += 64)
            __builtin_prefetch(reinterpret_cast<const char*>(next) + j);
        for (int j = 0; j < NV; j++) {
            const Vec<T, W> value = load<W>(row + j * W);
            const int head = VPH == 8 ? 0 : j / VPH;
            sum[j] += value * w[i * heads + head];
            if (Dual) sum2[j] += value * w2[i * heads + head];
        }
    }
    for (int j = 0; j < NV; j++) {
        store<W>(to + j * W, sum[j]);
        if (Dual) store<W>(to2 + j * W, sum2[j]);
    }
}

template <class T, int W, int VPH, bool Dual>
void add_vectors(const T* x, int64_t width, int64_t vectors, const int64_t* rows, int64_t n, const T* w,
                 const T* w2, int64_t heads, T* to, T* to2) {
    // The sums of a panel stay in registers: 32 of them with AVX-512, else 16.
    constexpr int kPanel = Dual && WEFT_VECTOR_BYTES < 64 ? 4 : 8;
    int64_t at = 0;
    auto panel = [&](auto count) {
        constexpr int NV = decltype(count)::value;
        if constexpr (NV <= kPanel && (NV >= VPH || VPH == 8)) {
            while (vectors - at >= NV) {
                const int64_t head = VPH == 8 ? 0 : at / VPH;
                add_panel<T, W, NV, VPH, Dual>(x + at * W, width, rows, n, w + head, Dual ? w2 + head : w2,
                                               heads, to + at * W, to2 + at * W);
                at += NV;
            }
        }
    };
    panel(Constant<8>());
    panel(Constant<4>());
    panel(Constant<2>());
    panel(Constant<1>());
}

template <class T, int W, bool Dual>
void add_width(const T* x, int64_t width, int64_t heads, int64_t dim, const int64_t* rows, int64_t n,
               const T* w, const T* w2, T* to, T* to2) {
    const int64_t per_head = dim / W, vectors = heads * per_head;
    switch (per_head) {
        case 1:
            return add_vectors<T, W, 1, Dual>(x, width, vectors, rows, n, w, w2, heads, to, to2);
        case 2:
            return add_vectors<T, W, 2, Dual>(x, width, vectors, rows, n, w, w2, heads, to, to2);
        case 4:
            return add_vectors<T, W, 4, Dual>(x, width, vectors, rows, n, w, w2, heads, to, to2);
        default:
            for (int64_t h = 0; h < heads; h++)
                add_vectors<T, W, 8, Dual>(x + h * dim, width, per_head, rows, n, w + h, Dual ? w2 + h : w2,
                                           heads, to + h * dim, to2 + h * dim);
    }
}

// Calls f(Constant<W>) with the widest vector that divides a head; dim is a multiple of four.
template <class T, class F>
WEFT_INLINE void with_width(int64_t dim, F&& f) {
    if constexpr (widest<T>() >= 16)
        if (dim % 16 == 0) return f(Constant<16>());
    if constexpr (widest<T>() >= 8)
        if (dim % 8 == 0) return f(Constant<8>());
    if constexpr (widest<T>() >= 4)
        f(Constant<4>());
    else
        f(Constant<2>());
}

// to[H, dim] = x[h] * scale[h]
template <class T>
void scale_heads(const T* x, const T* scale, int64_t heads, int64_t dim, T* to) {
    with_width<T>(dim, [&](auto width) {
        constexpr int W = decltype(width)::value;
        for (int64_t h = 0; h < heads; h++)
            for (int64_t at = h * dim; at < (h + 1) * dim; at += W)
                store<W>(to + at, Vec<T, W>(load<W>(x + at) * scale[h]));
    });
}

// to[H, dim] += sum over edges of w[e, h] * x[row]; and the same with w2 into to2 where w2 is given. Rows of
// x are `width` apart.
template <class T>
void add_rows(const T* x, int64_t width, int64_t heads, int64_t dim, const int64_t* rows, int64_t n,
              const T* w, T* to, const T* w2 = nullptr, T* to2 = nullptr) {
    if (n == 0) return;
    with_width<T>(dim, [&](auto vector) {
        constexpr int W = decltype(vector)::value;
        if (w2)
            add_width<T, W, true>(x, width, heads, dim, rows, n, w, w2, to, to2);
        else
            add_width<T, W, false>(x, width, heads, dim, rows, n, w, w, to, to);
    });
}

// ---- s[e, h] = sum over d of term(x[row][h, d], h * dim + d), eight or four heads at a time so that the
// sums across lanes are shared. A term is told the number of each edge before it is asked.
template <class T>
struct DotTerm {
    const T* c;

    WEFT_INLINE void edge(int64_t) {}
    template <int W>
    WEFT_INLINE Vec<T, W> of(const Vec<T, W>& x, int64_t at) const {
        return x * load<W>(c + at);
    }
};

template <int W, class T>
WEFT_INLINE Vec<T, W> leaky(const Vec<T, W>& pre, T slope) {
    return pre > T(0) ? pre : pre * slope;
}

template <class T, bool HasEdge>
struct Gatv2Term {
    const T *c, *a, *edges;
    const int64_t* positions;
    int64_t width;
    T slope;
    const T* own;

    WEFT_INLINE void edge(int64_t i) {
        if (HasEdge) own = edges + positions[i] * width;
    }
    template <int W>
    WEFT_INLINE Vec<T, W> of(const Vec<T, W>& x, int64_t at) const {
        Vec<T, W> pre = x + load<W>(c + at);
        if (HasEdge) pre += load<W>(own + at);
        return load<W>(a + at) * leaky<W>(pre, slope);
    }
};

template <int W, int N, class T, class Term>
WEFT_INLINE void heads_dot(const T* row, int64_t first, int64_t dim, const Term& term, T* to) {
    Vec<T, W> sum[N];
    for (int h = 0; h < N; h++) {
        const int64_t at = (first + h) * dim;
        sum[h] = term.template of<W>(load<W>(row + at), at);
        for (int64_t d = W; d < dim; d += W) sum[h] += term.template of<W>(load<W>(row + at + d), at + d);
    }
    sums<T, W, N>(sum, to + first);
}

template <int W, class T, class Term>
void rows_dot_width(const T* x, int64_t heads, int64_t dim, const int64_t* rows, int64_t n, T* s, Term term) {
    constexpr int N = W < 8 ? W : 8;
    for (int64_t i = 0; i < n; i++) {
        prefetch_row(x + rows[i + kAhead] * heads * dim, heads * dim);
        const T* row = x + rows[i] * heads * dim;
        term.edge(i);
        int64_t h = 0;
        for (; h + N <= heads; h += N) heads_dot<W, N>(row, h, dim, term, s + i * heads);
        for (; h < heads; h++) heads_dot<W, 1>(row, h, dim, term, s + i * heads);
    }
}

template <class T, class Term>
void rows_dot_with(const T* x, int64_t heads, int64_t dim, const int64_t* rows, int64_t n, T* s,
                   const Term& term) {
    with_width<T>(dim, [&](auto width) {
        rows_dot_width<decltype(width)::value, T, Term>(x, heads, dim, rows, n, s, term);
    });
}

// s[e, h] = <x[row][h], c[h]>
template <class T>
void rows_dot(const T* x, const T* c, int64_t heads, int64_t dim, const int64_t* rows, int64_t n, T* s) {
    rows_dot_with(x, heads, dim, rows, n, s, DotTerm<T>{c});
}

// s[e, h] = <a[h], leaky_relu(x[row][h] + c[h] + edge[e, h])>; edge rows are at edge + positions[i] * H *
// dim.
template <class T>
void rows_gatv2(const T* x, const T* c, const T* a, const T* edge, const int64_t* positions, T slope,
                int64_t heads, int64_t dim, const int64_t* rows, int64_t n, T* s) {
    const int64_t width = heads * dim;
    if (edge)
        rows_dot_with(x, heads, dim, rows, n, s,
                      Gatv2Term<T, true>{c, a, edge, positions, width, slope, edge});
    else
        rows_dot_with(x, heads, dim, rows, n, s,
                      Gatv2Term<T, false>{c, a, edge, positions, width, slope, edge});
}

// The gradient of that score, for NV vectors of a head from column `at` on: with pre = x[row] + c + edge,
// to += de * leaky'(pre), to_a += de * leaky(pre), d_edge = de * a * leaky'(pre).
template <int W, int NV, class T>
void gatv2_panel(const T* x, const T* c, const T* a, const T* edge, const int64_t* positions, T slope,
                 int64_t width, const int64_t* rows, int64_t n, const T* de, int64_t heads, T* to, T* to_a,
                 T* d_edge) {
    Vec<T, W> sum[NV], sum_a[NV];
    for (int j = 0; j < NV; j++) {
        sum[j] = load<W>(to + j * W);
        sum_a[j] = to_a ? load<W>(to_a + j * W) : Vec<T, W>{};
    }
    const Vec<T, W> one = Vec<T, W>{} + T(1), low = Vec<T, W>{} + slope;
    for (int64_t i = 0; i < n; i++) {
        const T* row = x + rows[i] * width;
        const T weight = de[i * heads];
        for (int j = 0; j < NV; j++) {
            Vec<T, W> pre = load<W>(row + j * W) + load<W>(c + j * W);
            if (edge) pre += load<W>(edge + positions[i] * width + j * W);
            const Vec<T, W> slopes = pre > T(0) ? one : low;
            const Vec<T, W> part = slopes * weight;
            sum[j] += part;
            if (to_a) sum_a[j] += part * pre;
            if (d_edge) store<W>(d_edge + positions[i] * width + j * W, Vec<T, W>(part * load<W>(a + j * W)));
        }
    }
    for (int j = 0; j < NV; j++) {
        store<W>(to + j * W, sum[j]);
        if (to_a) store<W>(to_a + j * W, sum_a[j]);
    }
}

template <int W, class T>
void add_gatv2_width(const T* x, const T* c, const T* a, const T* edge, const int64_t* positions, T slope,
                     int64_t heads, int64_t dim, const int64_t* rows, int64_t n, const T* de, T* to, T* to_a,
                     T* d_edge) {
    const int64_t width = heads * dim;
    for (int64_t h = 0; h < heads; h++) {
        for (int64_t d = 0; d < dim;) {
            const int64_t at = h * dim + d;
            const bool four = dim - d >= 4 * W;
            const auto panel = four ? gatv2_panel<W, 4, T> : gatv2_panel<W, 1, T>;
            panel(x + at, c + at, a + at, edge ? edge + at : edge, positions, slope, width, rows, n, de + h,
                  heads, to + at, to_a ? to_a + at : to_a, d_edge ? d_edge + at : d_edge);
            d += four ? 4 * W : W;
        }
    }
}

template <class T>
void add_gatv2(const T* x, const T* c, const T* a, const T* edge, const int64_t* positions, T slope,
               int64_t heads, int64_t dim, const int64_t* rows, int64_t n, const T* de, T* to, T* to_a,
               T* d_edge) {
    with_width<T>(dim, [&](auto width) {
        add_gatv2_width<decltype(width)::value>(x, c, a, edge, positions, slope, heads, dim, rows, n, de, to,
                                                to_a, d_edge);
    });
}
