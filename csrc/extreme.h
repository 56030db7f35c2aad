// The arguments of the largest or smallest value over edges; see src/weft/kernels/spmm.py.
#pragma once
#include <cstdint>

namespace weft {

struct Extreme {
    const int64_t* indptr;
    const void* indices;
    const void* x;   // [num_src, width]
    void* value;     // [num_rows, width]
    int32_t* count;  // [num_rows, width]
    int64_t num_rows, num_src, num_edges, width;
};

// The gradient of x runs on the transposed CSR: its rows are the sources, its indices the destinations.
struct ExtremeBackward {
    const int64_t* indptr;
    const void* indices;
    const void* x;      // [num_rows, width]
    const void* value;  // [num_dst, width]
    const void* share;  // [num_dst, width] in the accumulator's type: gradient / count
    void* out;          // [num_rows, width]
    int64_t num_rows, num_dst, num_edges, width;
};

}  // namespace weft
