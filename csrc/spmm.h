// The arguments of the sums over edges; see src/weft/kernels/spmm.py.
#pragma once
#include <cstdint>

namespace weft {

struct Spmm {
    const int64_t* indptr;
    const void* indices;
    const void* edges;      // place of each edge's weight, or null: its own
    const void* x;          // [num_src, width]
    const void* weight;     // [E, heads] in the accumulator's type, or null
    const void* src_scale;  // [num_src] in the accumulator's type, or null
    const void* dst_scale;  // [num_rows] in the accumulator's type, or null
    void* out;              // [num_rows, width]
    int64_t num_rows, num_src, num_edges;
    int64_t width, heads;  // columns of a row; heads of the weight, which divide them (1 where it has none)
    bool mean;
};

}  // namespace weft
