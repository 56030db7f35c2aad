// Flat loops over edge values [n, H]. Part of attention_kernels.h.
//
// A value a head (the maximum of a row, say) is laid out as a tile: repeated for a few edges, so that loops
// run over neighbouring numbers whatever the number of heads, and sums and maxima are held a lane each. Loops
// run over whole vectors: edge values have room behind their end, filled with what changes nothing.

constexpr int64_t kRound = 16;  // values; every vector divides it

inline int64_t rounded(int64_t count) { return (count + kRound - 1) / kRound * kRound; }

// Edges in a tile: whole vectors, and long enough that the additions of a sum do not wait for each other.
inline int64_t tile_edges(int64_t heads) {
    int64_t edges = 1;
    while (edges * heads % kRound || edges * heads < 64) edges++;
    return edges;
}

// Calls f with the number of heads, as a constant where that is common.
template <class F>
WEFT_INLINE void with_heads(int64_t heads, F&& f) {
    switch (heads) {
        case 1:
            return f(Constant<1>());
        case 2:
            return f(Constant<2>());
        case 4:
            return f(Constant<4>());
        case 8:
            return f(Constant<8>());
        default:
            return f(heads);
    }
}

template <class T>
WEFT_INLINE void copy(T* to, const T* from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = from[i];
}
template <class T, int N>
WEFT_INLINE void copy(T* to, const T* from, Constant<N>) {
    __builtin_memcpy(to, from, N * sizeof(T));
}

template <class T>
WEFT_INLINE void fill(T* to, int64_t count, T value) {
    for (int64_t i = 0; i < count; i++) to[i] = value;
}

// Fills the room behind n edges.
template <class T>
WEFT_INLINE void fill_end(T* values, int64_t n, int64_t heads, T value) {
    for (int64_t i = n * heads; i < rounded(n * heads); i++) values[i] = value;
}

template <class T>
void spread(const T* row, int64_t heads, int64_t edges, T* tile) {
    with_heads(heads, [&](auto width) {
        for (int64_t e = 0; e < edges; e++) copy(tile + e * width, row, width);
    });
}

template <class T>
void tile_sum(const T* tile, int64_t heads, int64_t edges, T* row) {
    with_heads(heads, [&](auto width) {
        for (int64_t e = 0; e < edges; e++)
            for (int64_t h = 0; h < width; h++) row[h] += tile[e * width + h];
    });
}

template <class T>
void tile_max(const T* tile, int64_t heads, int64_t edges, T* row) {
    with_heads(heads, [&](auto width) {
        for (int64_t e = 0; e < edges; e++)
            for (int64_t h = 0; h < width; h++)
                row[h] = tile[e * width + h] > row[h] ? tile[e * width + h] : row[h];
    });
}

// Calls f(place of the vector in the edge values, and in the tile) for the values of n edges.
template <class T, class F>
WEFT_INLINE void each_vector(int64_t n, int64_t heads, int64_t tile, F&& f) {
    const int64_t end = rounded(n * heads), length = rounded(tile * heads);
    for (int64_t first = 0; first < end; first += length) {
        const int64_t count = end - first < length ? end - first : length;
        for (int64_t i = 0; i < count; i += widest<T>()) f(first + i, i);
    }
}

// to[i, h] = table[rows[i], h], for tables whose rows are `stride` apart.
template <class T>
void gather_rows(const T* table, int64_t stride, int64_t heads, const int64_t* rows, int64_t n, T* to) {
    with_heads(heads, [&](auto width) {
        for (int64_t i = 0; i < n; i++) {
            __builtin_prefetch(table + rows[i + kFarAhead] * stride);
            copy(to + i * width, table + rows[i] * stride, width);
        }
    });
}

// The draws of W neighbouring lanes of one id.
template <int W>
WEFT_INLINE Vec<uint32_t, W> draws(uint64_t row, uint32_t first) {
    Vec<uint32_t, W> lane;
    for (int i = 0; i < W; i++) lane[i] = i;
    auto mix = [](Vec<uint32_t, W> value) WEFT_LAMBDA {
        value = (value ^ (value >> 16)) * 0x21F0AAADu;
        value = (value ^ (value >> 15)) * 0x735A2D97u;
        return value ^ (value >> 15);
    };
    return mix(mix((lane + first) * kGolden32 + static_cast<uint32_t>(row)) ^
               static_cast<uint32_t>(row >> 32));
}

template <class T>
struct Integer {
    typedef int32_t type;
};
template <>
struct Integer<double> {
    typedef int64_t type;
};

// w *= keep for the W heads from `head` on, and w2 alike where it is given.
template <int W, class T>
WEFT_INLINE void drop_heads(const Call& call, uint64_t key, int64_t head, T* w, T* w2) {
    typedef Vec<typename Integer<T>::type, W> Mask;
    const Vec<uint32_t, W> bits = draws<W>(key, static_cast<uint32_t>(head));
    const Mask dropped = __builtin_convertvector(bits < static_cast<uint32_t>(call.drop_below), Mask);
    const Vec<T, W> zero = {}, scale = zero + static_cast<T>(call.keep_scale), keep = dropped ? zero : scale;
    store<W>(w + head, Vec<T, W>(load<W>(w + head) * keep));
    if (w2) store<W>(w2 + head, Vec<T, W>(load<W>(w2 + head) * keep));
}

// Zeroes the values whose draw of (edge id, head) is below call.drop_below and scales the others; w2 alike if
// given. Edge i is at position positions[i] of the CSR, or first + i.
template <class T>
void drop(const Call& call, const int64_t* positions, int64_t first, int64_t n, uint64_t* keys, T* w, T* w2) {
    if (call.drop_below == 0) return;
    const int64_t heads = call.heads;
    if (call.drop_below > UINT32_MAX) {
        fill(w, n * heads, T(0));
        if (w2) fill(w2, n * heads, T(0));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t position = positions ? positions[i] : first + i;
        keys[i] = static_cast<uint64_t>(call.edge_ids ? call.edge_ids[position] : position);
    }
    for (int64_t i = 0; i < n; i++) keys[i] = row_key(call.draw_key, static_cast<int64_t>(keys[i]));
    for (int64_t i = 0; i < n; i++) {
        T *own = w + i * heads, *own2 = w2 ? w2 + i * heads : nullptr;
        int64_t h = 0;
        for (; h + 8 <= heads; h += 8) drop_heads<8>(call, keys[i], h, own, own2);
        for (; h + 4 <= heads; h += 4) drop_heads<4>(call, keys[i], h, own, own2);
        for (; h < heads; h++) {
            const T keep = draw(keys[i], static_cast<uint32_t>(h)) < static_cast<uint32_t>(call.drop_below)
                               ? T(0)
                               : static_cast<T>(call.keep_scale);
            own[h] *= keep;
            if (own2) own2[h] *= keep;
        }
    }
}

// to[h] = <x[h], y[h]>
template <class T>
void head_dots(const T* x, const T* y, int64_t heads, int64_t dim, T* to) {
    with_width<T>(dim, [&](auto width) {
        constexpr int W = decltype(width)::value, N = W < 8 ? W : 8;
        int64_t h = 0;
        for (; h + N <= heads; h += N) heads_dot<W, N>(x, h, dim, DotTerm<T>{y}, to);
        for (; h < heads; h++) heads_dot<W, 1>(x, h, dim, DotTerm<T>{y}, to);
    });
}
