// Flat loops over edge values [n, H]. Part of attention_kernels.h.
//
// A value a head (the maximum of a row, say) is laid out as a tile: repeated for a few edges, so that loops
// run over neighbouring numbers whatever the number of heads, and sums and maxima are held a lane each.

// Edges in a tile: whole vectors, and long enough that the additions of a sum do not wait for each other.
inline int64_t tile_edges(int64_t heads) {
    int64_t edges = 1;
    while (edges * heads % 16 || edges * heads < 64) edges++;
    return edges;
}

template <class T>
WEFT_INLINE void spread(const T* row, int64_t heads, int64_t edges, T* tile) {
    for (int64_t e = 0; e < edges; e++)
        for (int64_t h = 0; h < heads; h++) tile[e * heads + h] = row[h];
}

template <class T>
WEFT_INLINE void fill(T* to, int64_t count, T value) {
    for (int64_t i = 0; i < count; i++) to[i] = value;
}

template <class T>
WEFT_INLINE void tile_sum(const T* tile, int64_t heads, int64_t edges, T* row) {
    for (int64_t e = 0; e < edges; e++)
        for (int64_t h = 0; h < heads; h++) row[h] += tile[e * heads + h];
}

// Calls f(first value, values) for each tile of n edges.
template <class F>
WEFT_INLINE void tiles(int64_t n, int64_t heads, int64_t edges, F&& f) {
    for (int64_t at = 0; at < n * heads; at += edges * heads)
        f(at, n * heads - at < edges * heads ? n * heads - at : edges * heads);
}

// to[i, h] = table[rows[i], h], for tables whose rows are `stride` apart.
template <class T, class Width>
WEFT_INLINE void gather_fixed(const T* table, int64_t stride, Width width, const int64_t* rows, int64_t n,
                              T* to) {
    for (int64_t i = 0; i < n; i++) {
        __builtin_prefetch(table + rows[i + kAhead] * stride);
        for (int64_t h = 0; h < width; h++) to[i * width + h] = table[rows[i] * stride + h];
    }
}

template <class T>
void gather_rows(const T* table, int64_t stride, int64_t heads, const int64_t* rows, int64_t n, T* to) {
    switch (heads) {
        case 1:
            return gather_fixed(table, stride, Constant<1>(), rows, n, to);
        case 2:
            return gather_fixed(table, stride, Constant<2>(), rows, n, to);
        case 4:
            return gather_fixed(table, stride, Constant<4>(), rows, n, to);
        case 8:
            return gather_fixed(table, stride, Constant<8>(), rows, n, to);
        default:
            return gather_fixed(table, stride, heads, rows, n, to);
    }
}

// Zeroes the values whose draw of (edge id, head) is below call.drop_below and scales the others; w2 alike if
// given.
template <class T, class Width>
WEFT_INLINE void drop_fixed(const Call& call, const uint64_t* keys, Width width, int64_t n, T* w, T* w2) {
    const uint32_t below = static_cast<uint32_t>(call.drop_below);
    const T scale = static_cast<T>(call.keep_scale);
    for (int64_t i = 0; i < n; i++) {
        const uint64_t key = keys[i];
        for (int64_t h = 0; h < width; h++) {
            const T keep = draw(key, static_cast<uint32_t>(h)) < below ? T(0) : scale;
            w[i * width + h] *= keep;
            if (w2) w2[i * width + h] *= keep;
        }
    }
}

// Edge i is at position positions[i] of the CSR, or first + i.
template <class T>
void drop(const Call& call, const int64_t* positions, int64_t first, int64_t n, uint64_t* keys, T* w, T* w2) {
    if (call.drop_below == 0) return;
    if (call.drop_below > UINT32_MAX) {
        fill(w, n * call.heads, T(0));
        if (w2) fill(w2, n * call.heads, T(0));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t position = positions ? positions[i] : first + i;
        keys[i] = static_cast<uint64_t>(call.edge_ids ? call.edge_ids[position] : position);
    }
    for (int64_t i = 0; i < n; i++) keys[i] = row_key(call.draw_key, static_cast<int64_t>(keys[i]));
    switch (call.heads) {
        case 1:
            return drop_fixed(call, keys, Constant<1>(), n, w, w2);
        case 4:
            return drop_fixed(call, keys, Constant<4>(), n, w, w2);
        case 8:
            return drop_fixed(call, keys, Constant<8>(), n, w, w2);
        default:
            return drop_fixed(call, keys, call.heads, n, w, w2);
    }
}

template <class T>
WEFT_INLINE void head_dots(const T* x, const T* y, int64_t heads, int64_t dim, T* to) {
    static const int64_t self[kAhead + 1] = {};
    rows_dot(x, y, heads, dim, self, 1, to);
}
