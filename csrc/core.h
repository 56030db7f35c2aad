// What every file of the native core shares: exported symbols, codes, status, threads.
//
// The C interface takes raw pointers to dense row-major arrays and a number of threads and never throws. A
// function returns a Status. What it returns is the caller's memory, but for samples, whose sizes it alone
// knows in time: see memory.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#define WEFT_API extern "C" __attribute__((visibility("default")))
#define WEFT_INLINE inline __attribute__((always_inline))

WEFT_API int weft_advise(void* from, int64_t bytes);

namespace weft {

// The codes of kernels/native.py.
enum Dtype : int { kFloat32 = 0, kFloat64 = 1, kBFloat16 = 2, kFloat16 = 3 };
enum Index : int { kInt32 = 0, kInt64 = 1 };
enum Status : int { kOk = 0, kBadIndex = 1, kBadPointers = 2, kNoMemory = 3, kBadArgument = 4 };

struct BFloat16 {
    uint16_t bits;
};
struct Float16 {
    uint16_t bits;
};

// A row of more edges is cut at multiples of this and its parts are merged in order, so that a hub does not
// hold up the call and the result does not depend on the number of threads.
constexpr int64_t kHub = 4096;

// Work of a block of rows: its edges and, since a row without edges has to be written too, four a row.
constexpr int64_t kBlockWork = 8192;
constexpr int64_t kRowWork = 4;
// Edges of the rows of a block that are no hubs, at most: the last row may begin just before the end of the
// block.
constexpr int64_t kMaxBlock = kBlockWork + kHub;

// Runs task(0) … task(num_tasks - 1) on up to `threads` threads, in no particular order. Nothing may be
// thrown out of OpenMP's threads, which would end the process: a task without memory is reported when all are
// over.
template <class Task>
void parallel(int threads, int64_t num_tasks, const Task& task) {
#ifdef _OPENMP
    if (threads > 1 && num_tasks > 1) {
        if (threads > num_tasks) threads = static_cast<int>(num_tasks);
        bool no_memory = false;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) reduction(|| : no_memory)
        for (int64_t i = 0; i < num_tasks; ++i) {
            try {
                task(i);
            } catch (const std::bad_alloc&) {
                no_memory = true;
            }
        }
        if (no_memory) throw std::bad_alloc();
        return;
    }
#endif
    (void)threads;
    for (int64_t i = 0; i < num_tasks; ++i) task(i);
}

// Runs body(begin, end) over blocks of 0 … count of about `grain` each.
template <class Body>
void parallel_blocks(int threads, int64_t count, int64_t grain, const Body& body) {
    const int64_t blocks = (count + grain - 1) / grain;
    parallel(threads, blocks, [&](int64_t block) {
        const int64_t begin = block * grain;
        body(begin, begin + grain < count ? begin + grain : count);
    });
}

// A piece of a hub row: edges begin … end of it.
struct Piece {
    int64_t row, begin, end;
};

// How the rows of a CSR are shared out: blocks of whole rows with about the same work, and the pieces of hub
// rows.
struct Plan {
    std::vector<int64_t> bounds;  // rows bounds[i] … bounds[i + 1] are block i; hub rows in it are skipped
    std::vector<Piece> pieces;    // of all hub rows, in order
    std::vector<int64_t> first_piece;  // of each hub row in `pieces`, and their number at the end

    int64_t num_blocks() const { return static_cast<int64_t>(bounds.size()) - 1; }
    int64_t num_hubs() const { return static_cast<int64_t>(first_piece.size()) - 1; }
};

Plan make_plan(const int64_t* indptr, int64_t num_rows);

// Runs on_piece(number, piece) for the pieces of hub rows and on_rows(first, last) for the blocks of rows.
template <class OnPiece, class OnRows>
void run_plan(const Plan& plan, int threads, const OnPiece& on_piece, const OnRows& on_rows) {
    const int64_t num_pieces = static_cast<int64_t>(plan.pieces.size());
    parallel(threads, num_pieces + plan.num_blocks(), [&](int64_t task) {
        if (task < num_pieces)
            on_piece(task, plan.pieces[task]);
        else
            on_rows(plan.bounds[task - num_pieces], plan.bounds[task - num_pieces + 1]);
    });
}

// Runs on_hub(row, first piece, number of pieces) for every hub row: the merge of its pieces.
template <class OnHub>
void run_hubs(const Plan& plan, int threads, const OnHub& on_hub) {
    parallel(threads, plan.num_hubs(), [&](int64_t hub) {
        const int64_t first = plan.first_piece[hub];
        on_hub(plan.pieces[first].row, first, plan.first_piece[hub + 1] - first);
    });
}

// Threads worth waking for this many elementary operations: below some microseconds a second one costs more
// than it brings.
inline int worth(int threads, int64_t operations) {
    const int64_t most = 1 + operations / 262144;
    return most < threads ? static_cast<int>(most) : threads;
}

// Whether row pointers do not rise from 0 to the number of edges. With the check of the indices
// and of the places of edges, nothing a caller passes makes a kernel read or write outside its arrays.
inline bool bad_pointers(const int64_t* indptr, int64_t num_rows, int64_t num_edges) {
    bool falls = false;
    for (int64_t row = 0; row < num_rows; ++row) falls |= indptr[row + 1] < indptr[row];
    return falls || indptr[0] != 0 || indptr[num_rows] != num_edges;
}

// Calls body with a value of the C++ type of a dtype code; false for an unknown code.
template <class Body>
bool with_dtype(int dtype, const Body& body) {
    switch (dtype) {
        case kFloat32:
            body(float{});
            return true;
        case kFloat64:
            body(double{});
            return true;
        case kBFloat16:
            body(BFloat16{});
            return true;
        case kFloat16:
            body(Float16{});
            return true;
    }
    return false;
}

// The same, with a value of the type of an index code as well.
template <class Body>
bool with_types(int dtype, int index, const Body& body) {
    return with_dtype(dtype, [&](auto value) {
        if (index == kInt32)
            body(value, int32_t{});
        else
            body(value, int64_t{});
    });
}

// 1 / degree of every row (times scale), 0 for a row without edges.
template <class A>
void inverse_degrees(const int64_t* indptr, int64_t num_rows, const A* scale, A* to) {
    for (int64_t row = 0; row < num_rows; ++row) {
        const int64_t degree = indptr[row + 1] - indptr[row];
        const A inverse = degree ? A{1} / static_cast<A>(degree) : A{0};
        to[row] = scale ? inverse * scale[row] : inverse;
    }
}

// Runs body(status) and returns the status it sets; nothing may be thrown across the C interface.
template <class Body>
int guarded(const Body& body) {
    Status status = kBadArgument;
    try {
        body(status);
    } catch (const std::bad_alloc&) {
        return kNoMemory;
    }
    return status;
}

// The instruction set in use: 0 portable, 1 AVX2 (x86-64-v3), 2 AVX-512 (x86-64-v4).
int level();

}  // namespace weft
