// Programs over the edges of a CSR: see program.h and
// src/weft/compiler/native/backend.py.
#include "program.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <new>

#define WEFT_KERNELS "program_kernels.h"
#include "each_isa.h"

namespace weft {
namespace {

// Groups of blocks that keep sums over all edges of their own; merged in order.
constexpr int64_t kSlots = 64;

// The weights of products in the order they are read; at most a vector of 64
// bytes wider than they are.
template <class T>
struct Packed {
    std::vector<std::unique_ptr<T[]>> held;
    std::vector<void*> pointers;
    std::vector<char> finite;

    explicit Packed(const ProgramCall& call)
        : held(call.code.num_steps), pointers(call.code.num_steps), finite(call.code.num_steps) {
        for (int64_t i = 0; i < call.code.num_steps; ++i) {
            const ProgramStep& step = call.code.steps[i];
            if (step.op != kDot && step.op != kDotT) continue;
            const int64_t depth = step.sizes[1], columns = step.sizes[2];
            held[i].reset(new T[depth * (columns + 64)]);
            WEFT_CALL(pack_panels, static_cast<const T*>(call.tensors[step.tensor]), step.op == kDotT, depth,
                      columns, held[i].get());
            pointers[i] = held[i].get();
            finite[i] = WEFT_CALL(finite, static_cast<const T*>(call.tensors[step.tensor]), depth * columns);
        }
    }
};

// The parts of hub rows, by output.
template <class T>
struct HubParts {
    std::vector<std::unique_ptr<T[]>> held;
    std::vector<void*> pointers;

    HubParts(const ProgramCall& call, int64_t num_outputs, int64_t pieces)
        : held(num_outputs), pointers(call.outputs, call.outputs + num_outputs) {
        for (int64_t i = 0; pieces && i < call.code.num_results; ++i) {
            const ProgramResult& result = call.code.results[i];
            if (result.kind > kSoftmaxRows) continue;
            for (int64_t output : result.outputs) {
                if (output < 0) continue;
                held[output].reset(new T[pieces * 2 * result.heads * result.width]);
                pointers[output] = held[output].get();
            }
        }
    }
};

// What a thread needs for one task.
template <class T>
struct Workspace {
    std::unique_ptr<T[]> arena;
    std::unique_ptr<int64_t[]> places;
    std::unique_ptr<Segment[]> segments;
    ProgramState state{};

    Workspace(const ProgramCode& code, const T* once, T* slot)
        : arena(new T[code.arena + 128]()),
          places(new int64_t[2 * kNumLists * code.tile]),
          segments(new Segment[code.tile]) {
        // From the beginning of a line: a wide vector across two costs twice.
        const auto address = reinterpret_cast<uintptr_t>(arena.get());
        state.arena = reinterpret_cast<void*>((address + 63) / 64 * 64);
        if (once) std::memcpy(state.arena, once, code.once * sizeof(T));
        state.slot = slot;
        for (int i = 0; i < kNumLists; ++i) {
            state.lists[i] = places.get() + i * code.tile;
            state.ahead[i] = state.lists[i] + kNumLists * code.tile;
        }
        state.segments = segments.get();
    }
};

bool indices_in_range(const void* indices, bool wide, int64_t begin, int64_t end, int64_t bound) {
    if (wide) return WEFT_CALL(in_range, static_cast<const int64_t*>(indices) + begin, end - begin, bound);
    return WEFT_CALL(in_range, static_cast<const int32_t*>(indices) + begin, end - begin, bound);
}

template <class T>
void merge_slots(const ProgramCall& call, const T* slots, int64_t count) {
    for (int64_t i = 0; i < call.code.num_results; ++i) {
        const ProgramResult& result = call.code.results[i];
        if (result.kind != kSumShared && result.kind != kSumWeight) continue;
        const int64_t size = result.heads * result.width;
        T* out = static_cast<T*>(call.outputs[result.outputs[0]]);
        for (int64_t k = 0; k < size; ++k) out[k] = 0;
        for (int64_t slot = 0; slot < count; ++slot) {
            const T* from = slots + slot * call.code.slot + result.scratch;
            if (result.kind == kSumWeight)
                WEFT_CALL(add_panels, from, out, result.heads, result.width);
            else
                for (int64_t k = 0; k < size; ++k) out[k] += from[k];
        }
    }
}

template <class T>
Status run_program(ProgramCall& call, int64_t num_outputs, int threads) {
    threads = worth(threads, call.num_edges * call.code.work);
    const Plan plan = make_plan(call.indptr, call.num_rows);
    const int64_t pieces = static_cast<int64_t>(plan.pieces.size()), units = pieces + plan.num_blocks();
    const int64_t tasks = call.code.slot && units > kSlots ? kSlots : units;
    Packed<T> packed(call);
    call.packed = packed.pointers.data();
    call.finite = packed.finite.data();
    HubParts<T> parts(call, num_outputs, pieces);
    std::unique_ptr<T[]> slots(new T[call.code.slot * tasks]());
    Workspace<T> first(call.code, nullptr, nullptr);
    WEFT_CALL(program_once, T{}, call, first.state);
    std::atomic<bool> bad{false};
    const auto good = [&](int64_t begin, int64_t end) {
        const bool inside =
            indices_in_range(call.other, call.wide_other, begin, end, call.num_other) &&
            (!call.places || indices_in_range(call.places, call.wide_places, begin, end, call.num_edges));
        if (!inside) bad = true;
        return inside;
    };
    parallel(threads, tasks, [&](int64_t task) {
        Workspace<T> work_space(call.code, static_cast<const T*>(first.state.arena),
                                slots.get() + task * call.code.slot);
        ProgramState& state = work_space.state;
        for (int64_t unit = units * task / tasks; unit < units * (task + 1) / tasks; ++unit) {
            state.parts = unit < pieces;
            state.dests = state.parts ? parts.pointers.data() : call.outputs;
            if (state.parts) {
                const Piece& piece = plan.pieces[unit];
                if (good(piece.begin, piece.end)) WEFT_CALL(program_piece, T{}, call, state, unit, piece);
            } else {
                const int64_t begin = plan.bounds[unit - pieces], end = plan.bounds[unit - pieces + 1];
                if (good(call.indptr[begin], call.indptr[end]))
                    WEFT_CALL(program_rows, T{}, call, state, begin, end);
            }
        }
    });
    if (bad) return kBadIndex;
    run_hubs(plan, threads, [&](int64_t row, int64_t piece, int64_t count) {
        for (int64_t i = 0; i < call.code.num_results; ++i)
            if (call.code.results[i].kind <= kSoftmaxRows)
                WEFT_CALL(merge_parts, T{}, call.code.results[i], parts.pointers.data(), call.outputs, row,
                          piece, count);
    });
    merge_slots(call, slots.get(), tasks);
    return kOk;
}

}  // namespace
}  // namespace weft

// The code of a step or a result by its name, -1 where there is none.
WEFT_API int weft_program_op(const char* name) {
    for (int i = 0; i < weft::kNumOps; ++i)
        if (!std::strcmp(name, weft::kOpNames[i])) return i;
    return -1;
}
WEFT_API int weft_program_kind(const char* name) {
    for (int i = 0; i < weft::kNumKinds; ++i)
        if (!std::strcmp(name, weft::kKindNames[i])) return i;
    return -1;
}

// header, steps, results, gathers, numbers: the code, see ProgramCode. indptr: [num_rows + 1]; other:
// [num_edges], the row at each edge's other end; places: [num_edges], where its values are, or null: its own
// place. tensors are those of the code's loads, outputs those of its results. dtype: float32, float64.
WEFT_API int weft_program(const int64_t* header, const int64_t* steps, const int64_t* results,
                          const int64_t* gathers, const double* numbers, const int64_t* indptr,
                          const void* other, const void* places, void* const* tensors, void* const* outputs,
                          int64_t num_outputs, int64_t num_rows, int64_t num_other, int64_t num_edges,
                          int other_index, int place_index, int dtype, int threads) {
    using namespace weft;
    if (bad_pointers(indptr, num_rows, num_edges)) return kBadPointers;
    ProgramCall call{};
    call.code = {header[0],
                 header[1],
                 header[2],
                 header[3],
                 header[4],
                 header[5],
                 header[6],
                 header[7],
                 header[8],
                 reinterpret_cast<const ProgramStep*>(steps),
                 reinterpret_cast<const ProgramResult*>(results),
                 reinterpret_cast<const ProgramGather*>(gathers)};
    call.numbers = numbers;
    call.indptr = indptr;
    call.other = other, call.places = places;
    call.tensors = tensors, call.outputs = outputs;
    call.num_rows = num_rows, call.num_other = num_other, call.num_edges = num_edges;
    call.wide_other = other_index == kInt64, call.wide_places = place_index == kInt64;
    return guarded([&](Status& status) {
        status = dtype == kFloat32 ? run_program<float>(call, num_outputs, threads)
                                   : run_program<double>(call, num_outputs, threads);
    });
}
