// Uniform draws of positions, compiled for each instruction set. The definition is draw_positions in
// src/weft/draw.py.

// The draws of lanes first … first + Count: 32 bits scaled to 0 … bound(lane) - 1, bounds of 32 bits.
template <int Count>
WEFT_INLINE void scaled_draws(uint64_t key, uint32_t first, uint32_t bound, uint32_t rise, uint32_t* to) {
    for (int i = 0; i < Count; ++i) {
        const uint32_t lane = first + static_cast<uint32_t>(i), range = bound + rise * lane;
        to[i] = static_cast<uint32_t>((static_cast<uint64_t>(weft::draw(key, lane)) * range) >> 32);
    }
    // What follows reads them one by one, from memory: taking a vector apart costs more.
    asm volatile("" : : "r"(to) : "memory");
}

// The position that a step of Floyd's algorithm takes: the one drawn, or the last one if that was taken
// before. No branch: among few positions it would be guessed wrong.
WEFT_INLINE uint64_t floyd_step(uint64_t word, uint64_t drawn, uint64_t top) {
    const uint64_t again = (word >> (drawn & 63)) & 1;
    return drawn ^ ((drawn ^ top) & (0 - again));
}

// Where the columns of a hop are, to be prefetched as soon as it is known which are read.
struct Columns {
    const char* at;
    int64_t bytes;
    WEFT_INLINE void prefetch(int64_t slot) const { __builtin_prefetch(at + slot * bytes); }
};

// Floyd's algorithm: step i draws from 0 … base + i, both included, and takes base + i itself where the draw
// was taken before. Whether it was is a bit: of a register for up to 64 positions, else of `taken`, which is
// zero before and after. Pad is at least the number wanted, or 0 for any number.
template <int Pad>
WEFT_INLINE void draw_row(const weft::DrawJob& job, uint64_t* taken, const Columns& columns, int64_t* out) {
    constexpr int kChunk = Pad > 0 ? Pad : 64;
    uint32_t draws[kChunk];
    uint64_t bits = 0;
    const int64_t start = job.start, base = job.degree - job.wanted;
    for (int64_t step = 0; step < job.wanted; step += kChunk) {
        const int64_t left = job.wanted - step, count = Pad > 0 || left < kChunk ? left : kChunk;
        scaled_draws<kChunk>(job.key, static_cast<uint32_t>(step), static_cast<uint32_t>(base) + 1, 1, draws);
        const uint64_t top = static_cast<uint64_t>(base + step);
        if (job.degree <= 64) {
            for (int64_t i = 0; i < count; ++i) {
                const uint64_t place = floyd_step(bits, draws[i], top + i);
                bits |= uint64_t{1} << place;
                out[step + i] = start + static_cast<int64_t>(place);
                columns.prefetch(out[step + i]);
            }
            continue;
        }
        for (int64_t i = 0; i < count; ++i) {
            const uint64_t place = floyd_step(taken[draws[i] >> 6], draws[i], top + i);
            taken[place >> 6] |= uint64_t{1} << (place & 63);
            out[step + i] = start + static_cast<int64_t>(place);
            columns.prefetch(out[step + i]);
        }
    }
    if (job.degree > 64)
        for (int64_t i = 0; i < job.wanted; ++i) taken[(out[i] - start) >> 6] = 0;
}

// Writes the slots drawn for each job, one job after the other, and returns the end of what is written. Up to
// 8 numbers beyond it may be overwritten. `at` is where the columns are that will be read next, `bytes` the
// size of one.
inline int64_t* draw_jobs(const weft::DrawJob* jobs, int64_t count, uint64_t* taken, const char* at,
                          int64_t bytes, int64_t* out) {
    const Columns columns{at, bytes};
    for (int64_t j = 0; j < count; ++j) {
        const weft::DrawJob& job = jobs[j];
        if (job.degree <= job.wanted) {
            for (int64_t slot = 0; slot < job.degree; slot += 64 / bytes) columns.prefetch(job.start + slot);
            columns.prefetch(job.start + job.degree - 1);
            for (int64_t i = 0; i < job.degree; i += 8)
                for (int64_t lane = 0; lane < 8; ++lane) out[i + lane] = job.start + i + lane;
            out += job.degree;
            continue;
        }
        if (job.wanted <= 8)
            draw_row<8>(job, taken, columns, out);
        else if (job.wanted <= 16)
            draw_row<16>(job, taken, columns, out);
        else if (job.wanted <= 32)
            draw_row<32>(job, taken, columns, out);
        else
            draw_row<0>(job, taken, columns, out);
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
            scaled_draws<16>(job.key, static_cast<uint32_t>(step), static_cast<uint32_t>(job.degree), 0,
                             draws);
            for (int64_t i = 0; i < some; ++i) out[step + i] = job.start + draws[i];
            for (int64_t i = 0; i < some; ++i) __builtin_prefetch(columns + out[step + i] * bytes);
        }
        out += job.wanted;
    }
    return out;
}
