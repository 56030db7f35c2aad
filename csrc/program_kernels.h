// Programs over edges, a tile at a time, for one instruction set (see
// each_isa.h): rows are gathered into the tile, each step runs over all its
// edges, and what comes out is reduced. Tiles are cut by the CSR and the
// program alone, so results do not depend on the number of threads.
#include "program_weighted.h"

template <class T>
WEFT_INLINE void copy_row(const T* from, T* to, int64_t width) {
    in_vectors<T, kLanes<T>>(width, [&](auto zero, int64_t i) __attribute__((always_inline)) {
        put(to + i, get<decltype(zero)>(from + i));
    });
}

// Copies the rows `places` of a tensor into the tile.
template <class T>
__attribute__((noinline)) void gather_rows(const T* from, T* to, int64_t width, const int64_t* places,
                                           int64_t count) {
    const auto narrow = [&](auto zero) __attribute__((always_inline)) {
        using V = decltype(zero);
        for (int64_t e = 0; e < count; ++e, to += kWidth<V, T>)
            put(to, get<V>(from + places[e] * kWidth<V, T>));
    };
    switch (width) {
        case 1:
            return narrow(Vec<T, 1>{});
        case 2:
            return narrow(Vec<T, 2>{});
        case 4:
            return narrow(Vec<T, 4>{});
        case 8:
            return narrow(Vec<T, 8>{});
    }
    for (int64_t e = 0; e < count; ++e, to += width) copy_row(from + places[e] * width, to, width);
}

// Bytes that stand for whole numbers, one row per edge, as values.
template <class T>
__attribute__((noinline)) void gather_flags(const uint8_t* from, T* to, int64_t width, const int64_t* places,
                                            int64_t count) {
    for (int64_t e = 0; e < count; ++e, to += width)
        in_vectors<T, kLanes<T>>(width, [&](auto zero, int64_t i) __attribute__((always_inline)) {
            constexpr int W = kWidth<decltype(zero), T>;
            const Vec<int32_t, W> whole =
                __builtin_convertvector(load<W>(from + places[e] * width + i), Vec<int32_t, W>);
            put(to + i, __builtin_convertvector(whole, Vec<T, W>));
        });
}

template <class T>
__attribute__((noinline)) void store_flags(const T* from, uint8_t* to, int64_t width, const int64_t* places,
                                           int64_t count) {
    for (int64_t e = 0; e < count; ++e, from += width)
        in_vectors<T, kLanes<T>>(width, [&](auto zero, int64_t i) __attribute__((always_inline)) {
            constexpr int W = kWidth<decltype(zero), T>;
            const Vec<int32_t, W> whole =
                __builtin_convertvector(get<decltype(zero)>(from + i), Vec<int32_t, W>);
            store<W>(to + places[e] * width + i, __builtin_convertvector(whole, Vec<uint8_t, W>));
        });
}

template <class T>
void run_step(const ProgramCall& call, ProgramState& state, int64_t number, int64_t edges) {
    const ProgramStep& step = call.code.steps[number];
    T *arena = static_cast<T*>(state.arena), *out = arena + step.out;
    const T* from = step.tensor < 0 || step.op == kConstant
                        ? arena + step.args[0]
                        : static_cast<const T*>(call.tensors[step.tensor]);
    const int64_t *n = step.sizes, rows = n[0] * edges;
    if (step.op == kDot || step.op == kDotT)
        return dot(arena + step.args[0], static_cast<const T*>(call.packed[number]), out, rows, n[1], n[2],
                   step.sparse && call.finite[number],
                   [&](int64_t work) { ask_ahead<T>(call, state, work); });
    const Tile<T> tile{call, state, arena, edges};
    if (step.op == kDotWidth) return dot_width(step, tile);
    ask_ahead<T>(call, state, step.work * edges);
    if (step.op < kAdd) return unary_step(step, arena, edges);
    if (step.op < kWhere || step.op == kExpand) return binary_step(step, tile);
    if (step.op == kWhere) return where_loops(step, tile);
    switch (step.op) {
        case kLoadRow:
            return gather_rows(from, out, n[0], state.lists[kRowList], edges);
        case kLoadOther:
            return gather_rows(from, out, n[0], state.lists[kOtherList], edges);
        case kLoadEdge:
            return gather_rows(from, out, n[0], state.lists[kPlaceList], edges);
        case kLoadFlags:
            return gather_flags(static_cast<const uint8_t*>(call.tensors[step.tensor]), out, n[0],
                                state.lists[kPlaceList], edges);
        case kLoadShared:
            return copy_row(from, out, n[0]);
        case kConstant:
            *out = static_cast<T>(call.numbers[step.tensor]);
            return;
        case kSumWidth:
            return sum_width(from, out, rows, n[2]);
        case kSumHeads:
            return sum_heads(from, out, rows, n[1], n[2]);
    }
}

template <class T>
WEFT_INLINE void run_result(const ProgramCall& call, ProgramState& state, const ProgramResult& result) {
    T *arena = static_cast<T*>(state.arena), *slot = static_cast<T*>(state.slot) + result.scratch;
    const int64_t width = result.heads * result.width;
    const Rows<T> rows{arena + result.args[0], nullptr, width};
    switch (result.kind) {
        case kSumRows:
            return sum_segments<T>(call, result, state);
        case kSumWeighted:
        case kSumMixed:
            return weighted_segments<T>(call, result, state);
        case kMaxRows:
        case kMinRows:
            return extreme_segments<T>(call, result, state);
        case kSoftmaxRows:
            return softmax_segments<T>(call, result, state);
        case kEachEdge: {
            T* out = static_cast<T*>(call.outputs[result.outputs[0]]);
            for (int64_t e = 0; e < state.count; ++e)
                copy_row(rows.at(e), out + state.lists[kPlaceList][e] * width, width);
            return;
        }
        case kEachFlag:
            return store_flags(rows.base, static_cast<uint8_t*>(call.outputs[result.outputs[0]]), width,
                               state.lists[kPlaceList], state.count);
        case kSumShared: {
            T* tile = slot + width;  // summed by tile first: fewer roundings
            sum_rows(rows, state.count, tile, true);
            for (int64_t i = 0; i < width; ++i) slot[i] += tile[i];
            return;
        }
        case kSumWeight:
            return add_outer(rows.base, arena + result.args[1], slot, state.count * result.rows, result.heads,
                             result.width, result.sparse,
                             [&](int64_t work) { ask_ahead<T>(call, state, work); });
    }
}

template <class I>
WEFT_INLINE int64_t at_or_last(const void* indices, int64_t place, int64_t count) {
    return static_cast<const I*>(indices)[place < count ? place : count - 1];
}

// The numbers of `count` edges from `begin` on.
WEFT_INLINE void read_numbers(const void* from, bool wide, int64_t begin, int64_t count, int64_t* to,
                              int64_t end) {
    for (int64_t i = 0; i < count; ++i)
        to[i] = !from  ? (begin + i < end ? begin + i : end - 1)
                : wide ? at_or_last<int64_t>(from, begin + i, end)
                       : at_or_last<int32_t>(from, begin + i, end);
}

template <class T>
WEFT_INLINE void run_tile(const ProgramCall& call, ProgramState& state, int64_t next) {
    if (!state.count) return;
    read_numbers(call.other, call.wide_other, next, state.count, state.ahead[kOtherList], call.num_edges);
    read_numbers(call.places, call.wide_places, next, state.count, state.ahead[kPlaceList], call.num_edges);
    state.asking = state.asked = 0, state.owed = 0;
    state.ask_rate = static_cast<double>(call.code.num_gathers) / call.code.work;
    for (int64_t i = call.code.num_once; i < call.code.num_steps; ++i)
        run_step<T>(call, state, i, state.count);
    for (int64_t i = 0; i < call.code.num_results; ++i) run_result<T>(call, state, call.code.results[i]);
    state.count = state.num_segments = 0;
}

// Adds edges begin … end of a row to the tile, running it whenever it is full.
// A row that would be cut near its beginning waits for the next tile.
template <class T>
WEFT_INLINE void add_edges(const ProgramCall& call, ProgramState& state, int64_t row, int64_t dest,
                           int64_t begin, int64_t end) {
    const int64_t tile = call.code.tile;
    for (int64_t at = begin; at < end;) {
        int64_t room = tile - state.count;
        if (room < end - at && room * 4 < tile) {
            run_tile<T>(call, state, at);
            room = tile;
        }
        const int64_t some = end - at < room ? end - at : room, first = state.count;
        for (int64_t i = 0; i < some; ++i) state.lists[kRowList][first + i] = row;
        read_numbers(call.other, call.wide_other, at, some, state.lists[kOtherList] + first, call.num_edges);
        read_numbers(call.places, call.wide_places, at, some, state.lists[kPlaceList] + first,
                     call.num_edges);
        state.segments[state.num_segments++] = {dest, static_cast<int32_t>(first),
                                                static_cast<int32_t>(first + some), at == begin,
                                                at + some == end};
        state.count += some;
        at += some;
        if (state.count == tile) run_tile<T>(call, state, at);
    }
}

// The results of a row without edges.
template <class T>
WEFT_INLINE void empty_row(const ProgramCall& call, int64_t row) {
    for (int64_t i = 0; i < call.code.num_results; ++i) {
        const ProgramResult& result = call.code.results[i];
        if (result.kind > kSoftmaxRows) continue;
        const int64_t width = result.heads * result.width;
        T* out = static_cast<T*>(call.outputs[result.outputs[0]]) + row * width;
        for (int64_t k = 0; k < width; ++k) out[k] = 0;
        if (result.kind <= kSumMixed) continue;
        void* beside = call.outputs[result.outputs[1]];
        if (result.kind == kSoftmaxRows)
            for (int64_t k = 0; k < result.heads; ++k)
                static_cast<T*>(beside)[row * result.heads + k] = -Range<T>::kInfinity;
        else
            for (int64_t k = 0; k < width; ++k) static_cast<int32_t*>(beside)[row * width + k] = 0;
    }
}

// The rows first … last of a block, except hubs.
template <class T>
void program_rows(T, const ProgramCall& call, ProgramState& state, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
        const int64_t begin = call.indptr[row], end = call.indptr[row + 1];
        if (begin == end)
            empty_row<T>(call, row);
        else if (end - begin <= kHub)
            add_edges<T>(call, state, row, row, begin, end);
    }
    run_tile<T>(call, state, call.indptr[last]);
}

// A piece of a hub.
template <class T>
void program_piece(T, const ProgramCall& call, ProgramState& state, int64_t number, const Piece& piece) {
    add_edges<T>(call, state, piece.row, number, piece.begin, piece.end);
    run_tile<T>(call, state, piece.end);
}

// The steps that are the same for all edges.
template <class T>
void program_once(T, const ProgramCall& call, ProgramState& state) {
    for (int64_t i = 0; i < call.code.num_once; ++i) run_step<T>(call, state, i, 1);
}
