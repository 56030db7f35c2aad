// The arguments of the attention operators and the division of a CSR into tasks; see
// src/weft/kernels/attention.py.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core.h"
#include "draw.h"

namespace weft::attention {

enum Kind : int64_t { kAdditive = 0, kGatv2 = 1, kDot = 2 };

// Mirrored by a ctypes.Structure: every field has eight bytes. T is float or double everywhere; D and Dv are
// multiples of four. Null pointers mean: not given, or not wanted.
struct Call {
    int64_t kind, is_double, wide_indices, wide_edges, threads;
    int64_t num_dst, num_src, num_edges, heads, dim, value_dim;
    double slope;  // of the leaky ReLU; for dot scores the scale
    double keep_scale;
    uint64_t draw_key, drop_below;  // a draw below `drop_below` drops; 0 is no dropout
    const int64_t* indptr;
    const void* indices;
    const int64_t* t_indptr;
    const void *t_indices, *t_edges;
    const int64_t* edge_ids;
    // [num_src, H(, D)], [num_dst, H(, D)], [H, D], [num_src, H, Dv], [E, H(, D)]
    const void *src, *dst, *a, *value, *edge;
    void *out, *row_max, *row_sum;  // results of forward; the last two are read by backward
    const void* grad;               // [num_dst, H, Dv]
    const void* dot;                // [num_dst, H]: D of each row; null: the sum over these edges
    void *d_src, *d_dst, *d_a, *d_value, *d_edge;
    void* kept;  // additive: [num_dst, 2 H Dv + H], which forward leaves for backward; see Forward
};

struct Task {
    int64_t row_begin, row_end, edge_begin, edge_end;
    int64_t slot;  // where the partial result of a cut row goes, or -1
};

struct Hub {
    int64_t row, first_slot, num_slots;
};

struct Plan {
    std::vector<Task> tasks;
    std::vector<Hub> hubs;
    std::vector<int64_t> groups;  // first task of each group; a group is what one thread takes at a time
    int64_t num_slots = 0;
    int64_t max_edges = 0;  // of a task
    int64_t max_part = 0;   // of a row in one task
};

// What a kernel reads of a plan. The kernels use no templates of the standard library: compiled for a newer
// processor, the linker might keep that copy for everybody.
struct PlanView {
    const Task* tasks;
    const Hub* hubs;
    const int64_t* groups;
    int64_t num_tasks, num_hubs, num_groups, num_slots, max_edges, max_part, num_rows;
};

// malloc, in huge pages where that is worth it.
void* room(int64_t bytes);

#define WEFT_DECLARE(isa)                                                          \
    namespace isa {                                                                \
    int forward(const Call& call, const PlanView& rows);                           \
    int backward(const Call& call, const PlanView& rows, const PlanView& columns); \
    }
WEFT_DECLARE(portable)
WEFT_DECLARE(avx2)
WEFT_DECLARE(avx512)
#undef WEFT_DECLARE

}  // namespace weft::attention
