// Values for every edge from the rows at its ends, for one instruction set (see each_isa.h).

constexpr int64_t kAhead = 8;

template <int Lanes, class E>
WEFT_INLINE E total(const Vec<E, Lanes>& value) {
    if constexpr (Lanes == 1) {
        return value[0];
    } else {
        Vec<E, Lanes / 2> low, high;
        __builtin_memcpy(&low, &value, sizeof low);
        __builtin_memcpy(&high, reinterpret_cast<const char*>(&value) + sizeof low, sizeof high);
        return total<Lanes / 2, E>(low + high);
    }
}

// ⟨a, b⟩ over `count` values: whole vectors first, the rest in ever narrower ones.
template <int Lanes, class T>
Acc<T> dot(const T* a, const T* b, int64_t count) {
    Vec<Acc<T>, Lanes> sums[2] = {};
    int64_t i = 0;
    for (; i + 2 * Lanes <= count; i += 2 * Lanes) {
        sums[0] += read<Lanes>(a + i) * read<Lanes>(b + i);
        sums[1] += read<Lanes>(a + i + Lanes) * read<Lanes>(b + i + Lanes);
    }
    for (; i + Lanes <= count; i += Lanes) sums[0] += read<Lanes>(a + i) * read<Lanes>(b + i);
    Acc<T> sum = i ? total<Lanes, Acc<T>>(sums[0] + sums[1]) : Acc<T>{0};
    if constexpr (Lanes > 1)
        if (i < count) sum += dot<Lanes / 2>(a + i, b + i, count - i);
    return sum;
}

template <class T, class I>
void dot_edges(T, I, const Sddmm& call, int64_t row, int64_t begin, int64_t end) {
    constexpr int Lanes = kVectorBytes / sizeof(Acc<T>);
    typedef Acc<T> A;
    const I *indices = static_cast<const I*>(call.indices), *edges = static_cast<const I*>(call.edges);
    const A *src_scale = static_cast<const A*>(call.src_scale),
            *dst_scale = static_cast<const A*>(call.dst_scale);
    const int64_t width = call.heads * call.dim, final_edge = call.num_edges - 1;
    const T *a = static_cast<const T*>(call.a), *own = static_cast<const T*>(call.b) + row * width;
    A scale = dst_scale ? dst_scale[row] : A{1};
    if (call.mean) scale /= static_cast<A>(call.indptr[row + 1] - call.indptr[row]);
    for (int64_t e = begin; e < end; ++e) {
        const int64_t ahead = e + kAhead < final_edge ? e + kAhead : final_edge;
        prefetch(a + static_cast<int64_t>(indices[ahead]) * width, width * sizeof(T));
        const int64_t source = static_cast<int64_t>(indices[e]);
        const A factor = src_scale ? scale * src_scale[source] : scale;
        A* out = static_cast<A*>(call.out) + (edges ? static_cast<int64_t>(edges[e]) : e) * call.heads;
        for (int64_t head = 0; head < call.heads; ++head)
            out[head] =
                factor * dot<Lanes>(a + source * width + head * call.dim, own + head * call.dim, call.dim);
    }
}

template <int Op, int Lanes, class T>
void combine(const T* a, const T* b, T* out, int64_t count) {
    int64_t i = 0;
    for (; i + Lanes <= count; i += Lanes) {
        const Vec<Acc<T>, Lanes> left = read<Lanes>(a + i), right = read<Lanes>(b + i);
        if constexpr (Op == kAdd) write<Lanes>(out + i, left + right);
        if constexpr (Op == kSub) write<Lanes>(out + i, left - right);
        if constexpr (Op == kMul) write<Lanes>(out + i, left * right);
    }
    if constexpr (Lanes > 1)
        if (i < count) combine<Op, Lanes / 2>(a + i, b + i, out + i, count - i);
}

template <class T, class I>
void combine_edges(T, I, const Sddmm& call, int op, int64_t row, int64_t begin, int64_t end) {
    constexpr int Lanes = kVectorBytes / sizeof(Acc<T>);
    const I* indices = static_cast<const I*>(call.indices);
    const int64_t width = call.dim, final_edge = call.num_edges - 1;
    const T *a = static_cast<const T*>(call.a), *own = static_cast<const T*>(call.b) + row * width;
    for (int64_t e = begin; e < end; ++e) {
        const int64_t ahead = e + kAhead < final_edge ? e + kAhead : final_edge;
        prefetch(a + static_cast<int64_t>(indices[ahead]) * width, width * sizeof(T));
        const T* source = a + static_cast<int64_t>(indices[e]) * width;
        T* out = static_cast<T*>(call.out) + e * width;
        if (op == kAdd)
            combine<kAdd, Lanes>(source, own, out, width);
        else if (op == kSub)
            combine<kSub, Lanes>(source, own, out, width);
        else
            combine<kMul, Lanes>(source, own, out, width);
    }
}
