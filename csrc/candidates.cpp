// Candidates of a chunk that are no negatives of a pair, since they make a true one.
#include <limits>

#include "core.h"

namespace weft {
namespace {

constexpr int64_t kRows = 64;

// Column `where[node]` shows the node, and `next` the other columns that show it, until -1.
template <class T>
void leave_out(T* scores, const int64_t* first, const int64_t* count, const int64_t* ends, int64_t stride,
               int64_t before, const int32_t* where, const int32_t* next, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
        T* own = scores + row * stride + before;
        const int64_t* node = ends + first[row];
        for (int64_t i = 0; i < count[row]; ++i)
            for (int32_t column = where[node[i]]; column >= 0; column = next[column])
                own[column] = -std::numeric_limits<T>::infinity();
    }
}

}  // namespace
}  // namespace weft

// scores: [chunks, rows, stride], those of candidates last. Row r of chunk c has the true ends
// ends[first[i]] … of number count[i], i = c * rows + r; candidates: [chunks, columns]. where: one entry a
// node, all -1, and so again in the end.
WEFT_API int weft_leave_out(void* scores, const int64_t* first, const int64_t* count, const int64_t* ends,
                            int64_t chunks, int64_t rows, const int64_t* candidates, int64_t columns,
                            int64_t stride, int32_t* where, int dtype, int threads) {
    using namespace weft;
    return guarded([&](Status& status) {
        if (dtype != kFloat32 && dtype != kFloat64) return;
        std::vector<int32_t> next(columns);
        for (int64_t chunk = 0; chunk < chunks; ++chunk) {
            const int64_t* nodes = candidates + chunk * columns;
            for (int64_t column = 0; column < columns; ++column) {
                next[column] = where[nodes[column]];
                where[nodes[column]] = static_cast<int32_t>(column);
            }
            const int64_t at = chunk * rows, size = rows * stride;
            parallel_blocks(threads, rows, kRows, [&](int64_t begin, int64_t end) {
                if (dtype == kFloat32)
                    leave_out(static_cast<float*>(scores) + chunk * size, first + at, count + at, ends,
                              stride, stride - columns, where, next.data(), begin, end);
                else
                    leave_out(static_cast<double*>(scores) + chunk * size, first + at, count + at, ends,
                              stride, stride - columns, where, next.data(), begin, end);
            });
            for (int64_t column = 0; column < columns; ++column) where[nodes[column]] = -1;
        }
        status = kOk;
    });
}
