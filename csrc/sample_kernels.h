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

// Floyd's algorithm for `count` steps from `step` on: step i draws from 0 … base + i, both included, and
// takes base + i itself where the draw was taken before. Whether it was is a bit: of a register for up to 64
// positions, else of `taken`, which is zero before and after the row.
WEFT_INLINE void take_drawn(const weft::DrawJob& job, const uint32_t* draws, int64_t step, int64_t count,
                            uint64_t& bits, uint64_t* taken, const Columns& columns, int64_t* out) {
    const int64_t start = job.start;
    const uint64_t top = static_cast<uint64_t>(job.degree - job.wanted + step);
    if (job.degree <= 64) {
        for (int64_t i = 0; i < count; ++i) {
            const uint64_t place = floyd_step(bits, draws[i], top + i);
            bits |= uint64_t{1} << place;
            out[step + i] = start + static_cast<int64_t>(place);
            columns.prefetch(out[step + i]);
        }
        return;
    }
    for (int64_t i = 0; i < count; ++i) {
        const uint64_t place = floyd_step(taken[draws[i] >> 6], draws[i], top + i);
        taken[place >> 6] |= uint64_t{1} << (place & 63);
        out[step + i] = start + static_cast<int64_t>(place);
        columns.prefetch(out[step + i]);
    }
}

WEFT_INLINE void forget_taken(const weft::DrawJob& job, uint64_t* taken, const int64_t* out) {
    if (job.degree > 64)
        for (int64_t i = 0; i < job.wanted; ++i) taken[(out[i] - job.start) >> 6] = 0;
}

constexpr int64_t kMost = 32;  // draws of a row that are made before all rows of a group
constexpr int64_t kGroup = 16;

WEFT_INLINE void draw_ahead(const weft::DrawJob& job, uint32_t* draws) {
    const uint32_t bound = static_cast<uint32_t>(job.degree - job.wanted) + 1;
    if (job.wanted <= 8)
        scaled_draws<8>(job.key, 0, bound, 1, draws);
    else if (job.wanted <= 16)
        scaled_draws<16>(job.key, 0, bound, 1, draws);
    else if (job.wanted <= kMost)
        scaled_draws<kMost>(job.key, 0, bound, 1, draws);
}

inline void draw_many(const weft::DrawJob& job, uint64_t* taken, const Columns& columns, int64_t* out) {
    uint32_t draws[64];
    uint64_t bits = 0;
    const uint32_t bound = static_cast<uint32_t>(job.degree - job.wanted) + 1;
    for (int64_t step = 0; step < job.wanted; step += 64) {
        const int64_t left = job.wanted - step, count = left < 64 ? left : 64;
        scaled_draws<64>(job.key, static_cast<uint32_t>(step), bound, 1, draws);
        take_drawn(job, draws, step, count, bits, taken, columns, out);
    }
}

// Writes the slots drawn for each job, one job after the other, and returns the end of what is written. Up to
// 8 numbers beyond it may be overwritten. `at` is where the columns are that will be read next, `bytes` the
// size of one. The numbers of some jobs are drawn before any is used: mixing them is a long chain of
// multiplications, and those of different rows run side by side.
inline int64_t* draw_jobs(const weft::DrawJob* jobs, int64_t count, uint64_t* taken, const char* at,
                          int64_t bytes, int64_t* out) {
    const Columns columns{at, bytes};
    alignas(64) uint32_t draws[kGroup][kMost];
    for (int64_t j = 0; j < count; ++j) {
        if (j % kGroup == 0)
            for (int64_t k = j; k < count && k < j + kGroup; ++k)
                if (jobs[k].degree > jobs[k].wanted) draw_ahead(jobs[k], draws[k - j]);
        const weft::DrawJob& job = jobs[j];
        if (job.degree <= job.wanted) {
            for (int64_t slot = 0; slot < job.degree; slot += 64 / bytes) columns.prefetch(job.start + slot);
            columns.prefetch(job.start + job.degree - 1);
            for (int64_t i = 0; i < job.degree; i += 8)
                for (int64_t lane = 0; lane < 8; ++lane) out[i + lane] = job.start + i + lane;
            out += job.degree;
            continue;
        }
        uint64_t bits = 0;
        if (job.wanted <= kMost)
            take_drawn(job, draws[j % kGroup], 0, job.wanted, bits, taken, columns, out);
        else
            draw_many(job, taken, columns, out);
        forget_taken(job, taken, out);
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
