// Sums over the edges of rows of values times weights, a number a head, that
// are written nowhere before; for one instruction set (see each_isa.h).
#include "program_reduce.h"

// Heads whose sums are in registers together, four vectors of each.
constexpr int kHeadsAtOnce = kVectorBytes == 64 ? 4 : 2;

// One row for all of H heads, each of which weighs it by itself.
template <int H, class T>
WEFT_INLINE void weighted_alike(const Rows<T>& rows, const T* weight, int64_t heads, int64_t count, T* to,
                                bool first) {
    constexpr int Lanes = kLanes<T>;
    const int64_t width = rows.width;
    int64_t done = 0;
    for (; done + 4 * Lanes <= width; done += 4 * Lanes) {
        Vec<T, Lanes> sum[H][4] = {};
        for (int h = 0; !first && h < H; ++h)
            for (int k = 0; k < 4; ++k) sum[h][k] = load<Lanes>(to + h * width + done + k * Lanes);
        for (int64_t e = 0; e < count; ++e) {
            const T *at = rows.at(e) + done, *by = weight + e * heads;
            Vec<T, Lanes> x[4];
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k) x[k] = load<Lanes>(at + k * Lanes);
#pragma GCC unroll 4
            for (int h = 0; h < H; ++h)
#pragma GCC unroll 4
                for (int k = 0; k < 4; ++k) sum[h][k] += by[h] * x[k];
        }
#pragma GCC unroll 4
        for (int h = 0; h < H; ++h)
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k) store<Lanes>(to + h * width + done + k * Lanes, sum[h][k]);
    }
    for (int h = 0; h < H && done < width; ++h)
        weighted_head(weight + h, heads, rows, done, count, width - done, to + h * width + done, first, T{1});
}

template <class T>
WEFT_INLINE void weighted_alike(const Rows<T>& rows, const T* weight, int64_t heads, int64_t count, T* to,
                                bool first) {
    int64_t head = 0;
    for (; head + kHeadsAtOnce <= heads; head += kHeadsAtOnce)
        weighted_alike<kHeadsAtOnce>(rows, weight + head, heads, count, to + head * rows.width, first);
    const T* by = weight + head;
    T* at = to + head * rows.width;
    if constexpr (kHeadsAtOnce > 2) {
        if (heads - head == 3) return weighted_alike<3>(rows, by, heads, count, at, first);
        if (heads - head == 2) return weighted_alike<2>(rows, by, heads, count, at, first);
    }
    if (heads - head == 1) weighted_alike<1>(rows, by, heads, count, at, first);
}

// The heads of a row, weighed and added up.
template <class T>
WEFT_INLINE void mixed(const Rows<T>& rows, const T* weight, int64_t heads, int64_t width, int64_t count,
                       T* to, bool first) {
    constexpr int Lanes = kLanes<T>;
    int64_t done = 0;
    for (; done + 4 * Lanes <= width; done += 4 * Lanes) {
        Vec<T, Lanes> sum[4] = {};
        if (!first)
            for (int k = 0; k < 4; ++k) sum[k] = load<Lanes>(to + done + k * Lanes);
        for (int64_t e = 0; e < count; ++e) {
            const T* at = rows.at(e) + done;
            for (int64_t h = 0; h < heads; ++h, at += width)
#pragma GCC unroll 4
                for (int k = 0; k < 4; ++k) sum[k] += weight[e * heads + h] * load<Lanes>(at + k * Lanes);
        }
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) store<Lanes>(to + done + k * Lanes, sum[k]);
    }
    in_vectors<T, Lanes>(width - done, [&](auto zero, int64_t i) __attribute__((always_inline)) {
        using V = decltype(zero);
        V sum = first ? zero : get<V>(to + done + i);
        for (int64_t e = 0; e < count; ++e)
            for (int64_t h = 0; h < heads; ++h)
                sum += weight[e * heads + h] * get<V>(rows.at(e) + h * width + done + i);
        put(to + done + i, sum);
    });
}

template <class T>
__attribute__((noinline)) void weighted_segments(const ProgramCall& call, const ProgramResult& result,
                                                 ProgramState& state) {
    const int64_t heads = result.kind == kSumMixed ? result.rows : result.heads, width = result.width;
    const Rows<T> rows = rows_of<T>(call, state, result, result.args[1], result.rows * width);
    const T* weights = static_cast<const T*>(state.arena) + result.args[0];
    T* out = static_cast<T*>(state.dests[result.outputs[0]]);
    for (int64_t i = 0; i < state.num_segments; ++i) {
        const Segment& segment = state.segments[i];
        const int64_t count = segment.end - segment.begin;
        const T* weight = weights + segment.begin * heads;
        const Rows<T> some = rows.from(segment.begin);
        T* to = out + segment.dest * result.heads * width;
        ask_ahead<T>(call, state, count * result.work);
        if (result.kind == kSumMixed)
            mixed(some, weight, heads, width, count, to, segment.first);
        else if (result.rows == 1)
            weighted_alike(some, weight, heads, count, to, segment.first);
        else
            weighted_sum<T>(result, weight, nullptr, some, count, to, segment.first);
    }
}
