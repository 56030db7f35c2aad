// What becomes of a tile's values: sums, extremes and softmax over the edges of
// rows, for one instruction set (see each_isa.h). A row that is cut by the end
// of a tile goes on where it was left.
#include "program_dot.h"

// Rows of values one after the other, or those at `places` of a tensor.
template <class T>
struct Rows {
    const T* base;
    const int64_t* places;
    int64_t width;

    WEFT_INLINE const T* at(int64_t row) const { return base + (places ? places[row] : row) * width; }
    WEFT_INLINE Rows from(int64_t row) const {
        return places ? Rows{base, places + row, width} : Rows{base + row * width, nullptr, width};
    }
};

// The value that a result reduces, `width` numbers an edge.
template <class T>
WEFT_INLINE Rows<T> rows_of(const ProgramCall& call, const ProgramState& state, const ProgramResult& result,
                            int64_t place, int64_t width) {
    if (result.from < 0) return {static_cast<const T*>(state.arena) + place, nullptr, width};
    return {static_cast<const T*>(call.tensors[result.from]), state.lists[result.list], width};
}

// to = Σ of `count` rows, in their order; added to what is there unless
// `first`.
template <class T>
WEFT_INLINE void sum_rows(const Rows<T>& rows, int64_t count, T* to, bool first) {
    const int64_t width = rows.width;
    constexpr int Lanes = kLanes<T>;
    int64_t done = 0;
    for (; done + 4 * Lanes <= width; done += 4 * Lanes) {
        Vec<T, Lanes> sum[4] = {};
        if (!first)
            for (int k = 0; k < 4; ++k) sum[k] = load<Lanes>(to + done + k * Lanes);
        for (int64_t row = 0; row < count; ++row) {
            const T* at = rows.at(row) + done;
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k) sum[k] += load<Lanes>(at + k * Lanes);
        }
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) store<Lanes>(to + done + k * Lanes, sum[k]);
    }
    in_vectors<T, Lanes>(width - done, [&](auto zero, int64_t i) __attribute__((always_inline)) {
        using V = decltype(zero);
        V sum = first ? zero : get<V>(to + done + i);
        for (int64_t row = 0; row < count; ++row) sum += get<V>(rows.at(row) + done + i);
        put(to + done + i, sum);
    });
}

template <class T>
__attribute__((noinline)) void sum_segments(const ProgramCall& call, const ProgramResult& result,
                                            ProgramState& state) {
    const Rows<T> rows = rows_of<T>(call, state, result, result.args[0], result.heads * result.width);
    T* to = static_cast<T*>(state.dests[result.outputs[0]]);
    for (int64_t i = 0; i < state.num_segments; ++i) {
        const Segment& segment = state.segments[i];
        const int64_t count = segment.end - segment.begin;
        ask_ahead<T>(call, state, count * result.work);
        sum_rows(rows.from(segment.begin), count, to + segment.dest * rows.width, segment.first);
    }
}

// NaN beats every number.
template <class V>
WEFT_INLINE auto beats(const V& a, const V& b, bool maximum) {
    return (maximum ? a > b : a < b) | ((a != a) & (b == b));
}
template <class V>
WEFT_INLINE auto equals(const V& a, const V& b) {
    return (a == b) | ((a != a) & (b != b));
}

template <bool Maximum, class T>
__attribute__((noinline)) void extreme_segment(const Rows<T>& rows, int64_t count, T* value, int32_t* ties,
                                               bool first) {
    in_vectors<T, kLanes<T>>(rows.width, [&](auto zero, int64_t i) __attribute__((always_inline)) {
        using V = decltype(zero);
        constexpr int W = kWidth<V, T>;
        typedef Vec<AccInt<T>, W> Int;
        V best = first ? get<V>(rows.at(0) + i) : get<V>(value + i);
        Int equal = first ? Int{} : __builtin_convertvector(load<W>(ties + i), Int);
        for (int64_t row = 0; row < count; ++row) {
            const V other = get<V>(rows.at(row) + i);
            const Int better = bits_as<Int>(beats(other, best, Maximum));
            equal = better ? Int{} + 1 : equal - bits_as<Int>(equals(other, best));
            best = better ? other : best;
        }
        put(value + i, best);
        store<W>(ties + i, __builtin_convertvector(equal, Vec<int32_t, W>));
    });
}

template <class T>
void extreme_segments(const ProgramCall& call, const ProgramResult& result, ProgramState& state) {
    const Rows<T> rows = rows_of<T>(call, state, result, result.args[0], result.heads * result.width);
    T* value = static_cast<T*>(state.dests[result.outputs[0]]);
    int32_t* ties = static_cast<int32_t*>(state.dests[result.outputs[1]]);
    const int64_t width = result.heads * result.width;
    for (int64_t i = 0; i < state.num_segments; ++i) {
        const Segment& segment = state.segments[i];
        const int64_t count = segment.end - segment.begin, to = segment.dest * width;
        const auto one = result.kind == kMaxRows ? extreme_segment<true, T> : extreme_segment<false, T>;
        ask_ahead<T>(call, state, count * result.work);
        one(rows.from(segment.begin), count, value + to, ties + to, segment.first);
    }
}

// The larger of two; NaN wins.
template <class T>
WEFT_INLINE T top_of(T a, T b) {
    return a > b || a != a ? a : b;
}

// What is taken off a score: the largest, 0 where there is none but -inf.
template <class T>
WEFT_INLINE T level_of(T top) {
    return top == -Range<T>::kInfinity ? T{0} : top;
}

template <class T>
WEFT_INLINE void exp_all(T* values, int64_t count) {
    for (int64_t i = 0; i < count; i += kLanes<T>)
        store<kLanes<T>>(values + i, exp_of<T, kLanes<T>>(load<kLanes<T>>(values + i)));
}

// Where a softmax keeps, in the arena: of the row that is cut its largest
// scores and masses, what its sums are multiplied by, and of a tile weights by
// edge, largest scores and masses by segment.
template <class T>
struct SoftmaxScratch {
    T *open_top, *open_mass, *factor, *weight, *top, *mass;

    WEFT_INLINE SoftmaxScratch(const ProgramResult& result, T* arena, int64_t tile) {
        const int64_t head = (result.heads + 63) / 64 * 64, all = tile * result.heads + 64;
        open_top = arena + result.scratch;
        open_mass = open_top + head;
        factor = open_mass + head;
        weight = factor + head;
        top = weight + all;
        mass = top + all;
    }
};

// Largest scores by segment, weights by edge.
template <class T>
WEFT_INLINE void softmax_weights(const ProgramResult& result, const ProgramState& state,
                                 const SoftmaxScratch<T>& held) {
    const T* score = static_cast<const T*>(state.arena) + result.args[0];
    const int64_t heads = result.heads;
    for (int64_t i = 0; i < state.num_segments; ++i) {
        const Segment& segment = state.segments[i];
        in_vectors<T, kLanes<T>>(heads, [&](auto zero, int64_t head) __attribute__((always_inline)) {
            using V = decltype(zero);
            const V before = get<V>(held.open_top + head);
            V top = segment.first ? zero - Range<T>::kInfinity : before;
            for (int64_t e = segment.begin; e < segment.end; ++e) {
                const V one = get<V>(score + e * heads + head);
                top = (one > top) | (one != one) ? one : top;
            }
            const V least = zero - Range<T>::kInfinity, level = top == least ? zero : top;
            for (int64_t e = segment.begin; e < segment.end; ++e)
                put(held.weight + e * heads + head, get<V>(score + e * heads + head) - level);
            put(held.top + i * heads + head, top);
            if (!segment.first) put(held.factor + head, (before == least ? zero : before) - level);
            if (!segment.last) put(held.open_top + head, top);
        });
    }
    exp_all(held.weight, state.count * heads);
}

// Σ weight · value over the edges of a segment, for one head.
template <class T>
WEFT_INLINE void weighted_head(const T* weight, int64_t heads, const Rows<T>& rows, int64_t column,
                               int64_t count, int64_t width, T* to, bool first, T factor) {
    in_vectors<T, kLanes<T>>(width, [&](auto zero, int64_t i) __attribute__((always_inline)) {
        using V = decltype(zero);
        V sum = first ? zero : get<V>(to + i) * factor;
        for (int64_t e = 0; e < count; ++e) sum += weight[e * heads] * get<V>(rows.at(e) + column + i);
        put(to + i, sum);
    });
}

// The same for all heads; what is there already is multiplied by `factor`, null: 1. Where a head is whole
// vectors, four of a row at a time.
template <class T>
WEFT_INLINE void weighted_sum(const ProgramResult& result, const T* weight, const T* factor,
                              const Rows<T>& rows, int64_t count, T* to, bool first) {
    constexpr int Lanes = kLanes<T>;
    const int64_t heads = result.heads, width = result.width;
    int64_t done = 0;
    if (width % Lanes == 0)
        for (; done + 4 * Lanes <= rows.width; done += 4 * Lanes) {
            Vec<T, Lanes> sum[4] = {};
            int64_t head[4];
            for (int k = 0; k < 4; ++k) head[k] = (done + k * Lanes) / width;
            if (!first)
                for (int k = 0; k < 4; ++k) {
                    sum[k] = load<Lanes>(to + done + k * Lanes);
                    if (factor) sum[k] *= factor[head[k]];
                }
            for (int64_t e = 0; e < count; ++e) {
                const T *at = rows.at(e) + done, *by = weight + e * heads;
#pragma GCC unroll 4
                for (int k = 0; k < 4; ++k) sum[k] += by[head[k]] * load<Lanes>(at + k * Lanes);
            }
            for (int k = 0; k < 4; ++k) store<Lanes>(to + done + k * Lanes, sum[k]);
        }
    for (int64_t head = done / width; head < heads; ++head) {
        const int64_t begin = head * width < done ? done : head * width, end = (head + 1) * width;
        weighted_head(weight + head, heads, rows, begin, count, end - begin, to + begin, first,
                      factor ? factor[head] : T{1});
    }
}

// Divides the sums of a row by its masses.
template <class T>
WEFT_INLINE void finish_softmax(const ProgramResult& result, T* out, const T* mass) {
    for (int64_t head = 0; head < result.heads; ++head) {
        const T share = mass[head] == T{0} ? T{1} : mass[head];
        T* at = out + head * result.width;
        in_vectors<T, kLanes<T>>(result.width, [&](auto zero, int64_t i) __attribute__((always_inline)) {
            put(at + i, get<decltype(zero)>(at + i) / share);
        });
    }
}

template <class T>
WEFT_INLINE void log_all(T* values, int64_t count) {
    constexpr int Lanes = kLanes<T>;
    const auto log = [](const auto& v) __attribute__((always_inline)) { return log_of<kVectorBytes / 8>(v); };
    for (int64_t i = 0; i < count; i += Lanes)
        store<Lanes>(values + i, in_double<T, Lanes>(load<Lanes>(values + i), log));
}

// What is beside the sums of a finished row: the logarithms; of a part of a hub its largest scores and
// masses.
template <class T>
WEFT_INLINE void write_levels(const ProgramResult& result, const ProgramState& state,
                              const SoftmaxScratch<T>& held) {
    const int64_t heads = result.heads;
    T* beside = static_cast<T*>(state.dests[result.outputs[1]]);
    if (!state.parts) log_all(held.mass, state.num_segments * heads);
    for (int64_t i = 0; i < state.num_segments; ++i) {
        const Segment& segment = state.segments[i];
        if (!segment.last) continue;
        for (int64_t head = 0; head < heads; ++head) {
            const T top = held.top[i * heads + head], mass = held.mass[i * heads + head];
            if (state.parts) {
                beside[segment.dest * 2 * heads + head] = top;
                beside[(segment.dest * 2 + 1) * heads + head] = mass;
            } else {
                beside[segment.dest * heads + head] = level_of(top) + mass;
            }
        }
    }
}

template <class T>
__attribute__((noinline)) void softmax_segments(const ProgramCall& call, const ProgramResult& result,
                                                ProgramState& state) {
    const SoftmaxScratch<T> held(result, static_cast<T*>(state.arena), call.code.tile);
    const Rows<T> values = rows_of<T>(call, state, result, result.args[1], result.heads * result.width);
    const int64_t heads = result.heads;
    softmax_weights(result, state, held);
    T* out = static_cast<T*>(state.dests[result.outputs[0]]);
    if (!state.segments[0].first) exp_all(held.factor, heads);
    for (int64_t i = 0; i < state.num_segments; ++i) {
        const Segment& segment = state.segments[i];
        const int64_t count = segment.end - segment.begin;
        const T* weight = held.weight + segment.begin * heads;
        T *to = out + segment.dest * values.width, *mass = held.mass + i * heads;
        ask_ahead<T>(call, state, count * result.work);
        in_vectors<T, kLanes<T>>(heads, [&](auto zero, int64_t head) __attribute__((always_inline)) {
            using V = decltype(zero);
            V sum = segment.first ? zero : get<V>(held.open_mass + head) * get<V>(held.factor + head);
            for (int64_t e = 0; e < count; ++e) sum += get<V>(weight + e * heads + head);
            put(mass + head, sum);
            if (!segment.last) put(held.open_mass + head, sum);
        });
        weighted_sum(result, weight, held.factor, values.from(segment.begin), count, to, segment.first);
        if (segment.last && !state.parts) finish_softmax(result, to, mass);
    }
    write_levels(result, state, held);
}

// Merges the parts of a hub row, in their order, into the first of them and
// writes its row.
template <class T>
void merge_parts(T, const ProgramResult& result, void* const* parts, void* const* outputs, int64_t row,
                 int64_t first, int64_t count) {
    const int64_t width = result.heads * result.width;
    T *part = static_cast<T*>(parts[result.outputs[0]]) + first * width,
      *out = static_cast<T*>(outputs[result.outputs[0]]) + row * width;
    if (result.kind <= kSumMixed) return sum_rows(Rows<T>{part, nullptr, width}, count, out, true);
    if (result.kind == kSoftmaxRows) {
        const int64_t heads = result.heads;
        T* tops = static_cast<T*>(parts[result.outputs[1]]) + first * 2 * heads;
        for (int64_t head = 0; head < heads; ++head) {
            T top = tops[head], mass = 0;
            for (int64_t p = 1; p < count; ++p) top = top_of(tops[p * 2 * heads + head], top);
            T* to = out + head * result.width;
            for (int64_t i = 0; i < result.width; ++i) to[i] = 0;
            for (int64_t p = 0; p < count; ++p) {
                const T less = level_of(tops[p * 2 * heads + head]) - level_of(top);
                const T factor = exp_of<T, kLanes<T>>(splat<kLanes<T>>(less))[0];
                mass += factor * tops[p * 2 * heads + heads + head];
                for (int64_t i = 0; i < result.width; ++i)
                    to[i] += factor * part[p * width + head * result.width + i];
            }
            tops[head] = top, tops[heads + head] = mass;
        }
        finish_softmax(result, out, tops + heads);
        T* log = static_cast<T*>(outputs[result.outputs[1]]) + row * heads;
        for (int64_t head = 0; head < heads; ++head) {
            constexpr int W = kVectorBytes / 8;
            const double mass = tops[heads + head];
            log[head] = level_of(tops[head]) + static_cast<T>(log_of<W>(splat<W>(mass))[0]);
        }
        return;
    }
    const int32_t* ties = static_cast<const int32_t*>(parts[result.outputs[1]]) + first * width;
    int32_t* to = static_cast<int32_t*>(outputs[result.outputs[1]]) + row * width;
    for (int64_t i = 0; i < width; ++i) {
        T best = part[i];
        int32_t equal = ties[i];
        for (int64_t p = 1; p < count; ++p) {
            const T other = part[p * width + i];
            if (beats(other, best, result.kind == kMaxRows))
                best = other, equal = ties[p * width + i];
            else if (equals(other, best))
                equal += ties[p * width + i];
        }
        out[i] = best, to[i] = equal;
    }
}
