// What steps read and write: the vectors of an instruction set (see each_isa.h),
// and the values of a tile, in the arena or where they lie in their tensors.
#include "program_math.h"

template <class T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

// Calls body(vector of Lanes, place) over n values: as many whole vectors as
// fit, then narrower ones.
template <class T, int Lanes, class Body>
WEFT_INLINE void in_vectors(int64_t n, const Body& body) {
    int64_t i = 0;
    for (; i + Lanes <= n; i += Lanes) body(Vec<T, Lanes>{}, i);
    if constexpr (Lanes >= 16)
        if (i + 8 <= n) body(Vec<T, 8>{}, i), i += 8;
    if constexpr (Lanes >= 8)
        if (i + 4 <= n) body(Vec<T, 4>{}, i), i += 4;
    if constexpr (Lanes >= 4)
        if (i + 2 <= n) body(Vec<T, 2>{}, i), i += 2;
    for (; i < n; ++i) body(Vec<T, 1>{}, i);
}

template <class V, class T>
constexpr int kWidth = static_cast<int>(sizeof(V) / sizeof(T));

template <class V, class T>
WEFT_INLINE V get(const T* from) {
    return load<kWidth<V, T>>(from);
}
template <class V, class T>
WEFT_INLINE void put(T* to, const V& value) {
    store<kWidth<V, T>>(to, value);
}

// An argument: dense in the arena, or rows of a tensor by a list of the tile's
// edges.
template <class T>
struct Argument {
    const T* base;
    const int64_t *places, *strides;

    WEFT_INLINE const T* at(int64_t i, int64_t j) const {
        return base + (places ? places[i] : i) * strides[0] + j * strides[1];
    }
};

// Asks for rows of the next tile, in step with the work on this one.
template <class T>
WEFT_INLINE void ask_ahead(const ProgramCall& call, ProgramState& state, int64_t work) {
    state.owed += state.ask_rate * static_cast<double>(work);
    while (state.owed >= 1 && state.asking < call.code.num_gathers) {
        const ProgramGather& gather = call.code.gathers[state.asking];
        const int64_t row = state.ahead[gather.list][state.asked];
        prefetch(static_cast<const char*>(call.tensors[gather.tensor]) + row * gather.bytes, gather.bytes);
        if (++state.asked == state.count) state.asked = 0, ++state.asking;
        state.owed -= 1;
    }
}

// The arena, the tensors and the edges of the tile.
template <class T>
struct Tile {
    const ProgramCall& call;
    ProgramState& state;
    T* arena;
    int64_t edges;

    WEFT_INLINE Argument<T> argument(const ProgramStep& step, int i) const {
        if (step.from[i] < 0) return {arena + step.args[i], nullptr, step.strides[i]};
        return {static_cast<const T*>(call.tensors[step.from[i]]), state.lists[step.lists[i]],
                step.strides[i]};
    }
};

template <class T>
WEFT_INLINE int64_t whole_vectors(int64_t n) {
    return (n + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}
