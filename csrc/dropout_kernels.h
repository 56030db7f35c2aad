// Dropout by counter draws for one instruction set (see each_isa.h).

template <int Lanes>
WEFT_INLINE Vec<uint32_t, Lanes> mix32_all(Vec<uint32_t, Lanes> value) {
    value = (value ^ (value >> 16)) * 0x21F0AAADu;
    value = (value ^ (value >> 15)) * 0x735A2D97u;
    return value ^ (value >> 15);
}

// Lanes values of a row from lane `lane` on; weyl is golden · (lane, lane + 1, …).
template <int Lanes, class T>
WEFT_INLINE void drop_some(const T* from, T* to, const Vec<uint32_t, Lanes>& weyl, uint64_t row,
                           uint32_t threshold, Acc<T> scale) {
    typedef Vec<Acc<T>, Lanes> V;
    const Vec<uint32_t, Lanes> first = mix32_all<Lanes>(static_cast<uint32_t>(row) + weyl);
    const Vec<uint32_t, Lanes> bits = mix32_all<Lanes>(first ^ static_cast<uint32_t>(row >> 32));
    const auto dropped =
        __builtin_convertvector(bits_as<Vec<int32_t, Lanes>>(bits < threshold), Vec<AccInt<T>, Lanes>);
    write<Lanes>(to, dropped ? V{} : read<Lanes>(from) * splat<Lanes>(scale));
}

// Rows of x are keyed by ids, columns are lanes.
template <class T>
void drop_rows(const T* x, T* out, const int64_t* ids, int64_t width, uint64_t key, uint32_t threshold,
               Acc<T> scale, int64_t first, int64_t last) {
    constexpr int Lanes = kVectorBytes / sizeof(Acc<T>);
    Vec<uint32_t, Lanes> start;
    for (int lane = 0; lane < Lanes; ++lane) start[lane] = kGolden32 * static_cast<uint32_t>(lane);
    for (int64_t i = first; i < last; ++i) {
        const uint64_t row = row_key(key, ids[i]);
        const T* from = x + i * width;
        T* to = out + i * width;
        Vec<uint32_t, Lanes> weyl = start;
        int64_t column = 0;
        for (; column + Lanes <= width; column += Lanes) {
            drop_some<Lanes>(from + column, to + column, weyl, row, threshold, scale);
            weyl += kGolden32 * static_cast<uint32_t>(Lanes);
        }
        for (; column < width; ++column)
            drop_some<1>(from + column, to + column,
                         Vec<uint32_t, 1>{kGolden32 * static_cast<uint32_t>(column)}, row, threshold, scale);
    }
}

// Each value has its own id and lane.
template <class T, class I>
void drop_values(const T* x, T* out, const int64_t* ids, const I* lanes, uint64_t key, uint32_t threshold,
                 Acc<T> scale, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
        const uint32_t bits = draw(row_key(key, ids[i]), static_cast<uint32_t>(lanes[i]));
        const Acc<T> kept = read_one(x + i) * scale;
        write_one(out + i, bits < threshold ? Acc<T>{0} : kept);
    }
}

inline void draw_rows(const int64_t* ids, int64_t width, uint64_t key, uint32_t* out, int64_t first,
                      int64_t last) {
    for (int64_t i = first; i < last; ++i) {
        const uint64_t row = row_key(key, ids[i]);
        for (int64_t lane = 0; lane < width; ++lane)
            out[i * width + lane] = draw(row, static_cast<uint32_t>(lane));
    }
}
