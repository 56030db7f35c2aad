// The arguments of the values computed for every edge; see src/weft/kernels/sddmm.py.
#pragma once
#include <cstdint>

namespace weft {

struct Sddmm {
    const int64_t* indptr;
    const void* indices;
    const void* edges;      // where each edge's value goes, or null: its own place
    const void* a;          // [num_src, heads · dim]
    const void* b;          // [num_rows, heads · dim]
    const void* src_scale;  // [num_src] in the accumulator's type, or null
    const void* dst_scale;  // [num_rows] in the accumulator's type, or null
    void* out;              // dot: [E, heads] in the accumulator's type; else [E, heads · dim]
    int64_t num_rows, num_src, num_edges, heads, dim;
    bool mean;  // divide by the number of edges of the row
};

enum SddmmOp : int { kAdd = 0, kSub = 1, kMul = 2 };

}  // namespace weft
