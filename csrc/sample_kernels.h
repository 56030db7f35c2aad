// Uniform draws of positions, compiled for each instruction set. The definition is draw_positions in
// src/weft/draw.py.

// The draws of lanes first … first + Count: 32 bits scaled to 0 … bound(lane) - 1.
template <int Count>
WEFT_INLINE void scaled_draws(uint64_t key, uint32_t first, uint64_t bound, uint64_t rise, uint32_t* to) {
    for (int i = 0; i < Count; ++i) {
        const uint32_t lane = first + static_cast<uint32_t>(i);
        to[i] = static_cast<uint32_t>(
            (static_cast<uint64_t>(weft::draw(key, lane)) * (bound + rise * lane)) >> 32);
    }
}

// Floyd's algorithm: step i draws from 0 … base + i, both included, and takes base + i itself where the draw
// was taken before. Whether it was is a bit: of a register for up to 64 positions, else of `taken`, which is
// zero before and after.
WEFT_INLINE void floyd_small(const uint32_t* draws, int64_t wanted, int64_t start, int64_t base,
                             uint64_t& bits, int64_t step, int64_t* out) {
    for (int64_t i = 0; i < wanted; ++i) {
        const uint64_t top = static_cast<uint64_t>(base + step + i), drawn = draws[i];
        const uint64_t place = (bits >> drawn) & 1 ? top : drawn;
        bits |= uint64_t{1} << place;
        out[i] = start + static_cast<int64_t>(place);
    }
}

WEFT_INLINE void floyd_large(const uint32_t* draws, int64_t wanted, int64_t start, int64_t base,
                             uint64_t* taken, int64_t step, int64_t* out) {
    for (int64_t i = 0; i < wanted; ++i) {
        const uint64_t top = static_cast<uint64_t>(base + step + i), drawn = draws[i];
        const uint64_t place = (taken[drawn >> 6] >> (drawn & 63)) & 1 ? top : drawn;
        taken[place >> 6] |= uint64_t{1} << (place & 63);
        out[i] = start + static_cast<int64_t>(place);
    }
}

// One row of more positions than are wanted; Pad is at least `wanted`, or 0 for any number.
template <int Pad>
WEFT_INLINE void draw_row(const weft::DrawJob& job, uint64_t* taken, int64_t* out) {
    constexpr int kChunk = Pad > 0 ? Pad : 64;
    uint32_t draws[kChunk];
    uint64_t bits = 0;
    const int64_t base = job.degree - job.wanted;
    for (int64_t step = 0; step < job.wanted; step += kChunk) {
        const int64_t left = job.wanted - step, count = left < kChunk ? left : kChunk;
        scaled_draws<kChunk>(job.key, static_cast<uint32_t>(step), static_cast<uint64_t>(base) + 1, 1, draws);
        if (job.degree <= 64)
            floyd_small(draws, count, job.start, base, bits, step, out + step);
        else
            floyd_large(draws, count, job.start, base, taken, step, out + step);
    }
    if (job.degree > 64)
        for (int64_t i = 0; i < job.wanted; ++i) taken[(out[i] - job.start) >> 6] = 0;
}

// Writes the slots drawn for each job, one job after the other, and returns the end of what is written. Up to
// 8 numbers beyond it may be overwritten. `columns` is what will be read next, `bytes` the size of a column.
inline int64_t* draw_jobs(const weft::DrawJob* jobs, int64_t count, uint64_t* taken, const char* columns,
                          int64_t bytes, int64_t* out) {
    for (int64_t j = 0; j < count; ++j) {
        const weft::DrawJob& job = jobs[j];
        if (job.degree <= job.wanted) {
            const char* first = columns + job.start * bytes;
            for (int64_t at = 0; at < job.degree * bytes; at += 64) __builtin_prefetch(first + at);
            __builtin_prefetch(first + job.degree * bytes - 1);
            for (int64_t i = 0; i < job.degree; i += 8)
                for (int64_t lane = 0; lane < 8; ++lane) out[i + lane] = job.start + i + lane;
            out += job.degree;
            continue;
        }
        if (job.wanted <= 8)
            draw_row<8>(job, taken, out);
        else if (job.wanted <= 16)
            draw_row<16>(job, taken, out);
        else if (job.wanted <= 32)
            draw_row<32>(job, taken, out);
        else
            draw_row<0>(job, taken, out);
        for (int64_t i = 0; i < job.wanted; ++i) __builtin_prefetch(columns + out[i] * bytes);
        out += job.wanted;
    }
    return out;
}

// The same with replacement: every draw is from all positions, and a row without any gives none. A negative
// number wanted means each position once.
inline int64_t* draw_jobs_again(const weft::DrawJob* jobs, int64_t count, const char* columns, int64_t bytes,
                                int64_t* out) {
    uint32_t draws[16];
    for (int64_t j = 0; j < count; ++j) {
        const weft::DrawJob& job = jobs[j];
        if (job.degree == 0) continue;
        if (job.wanted < 0) {
            for (int64_t i = 0; i < job.degree; ++i) out[i] = job.start + i;
            out += job.degree;
            continue;
        }
        for (int64_t step = 0; step < job.wanted; step += 16) {
            const int64_t left = job.wanted - step, some = left < 16 ? left : 16;
            scaled_draws<16>(job.key, static_cast<uint32_t>(step), static_cast<uint64_t>(job.degree), 0,
                             draws);
            for (int64_t i = 0; i < some; ++i) out[step + i] = job.start + draws[i];
            for (int64_t i = 0; i < some; ++i) __builtin_prefetch(columns + out[step + i] * bytes);
        }
        out += job.wanted;
    }
    return out;
}
