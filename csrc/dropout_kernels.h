// Dropout by counter draws for one instruction set (see each_isa.h).

// Rows of x are keyed by ids, columns are lanes.
template <class T>
void drop_rows(const T* x, T* out, const int64_t* ids, int64_t width, uint64_t key, uint32_t threshold,
               Acc<T> scale, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
        const uint64_t row = row_key(key, ids[i]);
        const uint32_t low = static_cast<uint32_t>(row), high = static_cast<uint32_t>(row >> 32);
        const T* from = x + i * width;
        T* to = out + i * width;
        for (int64_t lane = 0; lane < width; ++lane) {
            const uint32_t bits = mix32(mix32(low + kGolden32 * static_cast<uint32_t>(lane)) ^ high);
            const Acc<T> kept = read_one(from + lane) * scale;
            write_one(to + lane, bits < threshold ? Acc<T>{0} : kept);
        }
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
