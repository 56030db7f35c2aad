// Softmax of rows where they lie, and the logarithm of the sum of exponentials of each.
#include <cmath>

#define WEFT_KERNELS "row_softmax_kernels.h"
#include "each_isa.h"

namespace weft {
namespace {

constexpr int64_t kRows = 16;

template <class T>
void softmax(T* rows, T* log_sums, int64_t count, int64_t columns, int threads) {
    std::vector<T> sums(count);
    parallel_blocks(worth(threads, count * columns), count, kRows, [&](int64_t begin, int64_t end) {
        WEFT_CALL(row_softmax, rows, log_sums, sums.data(), columns, begin, end);
        // Of a row of which nothing is left the largest is -inf, and so is this.
        for (int64_t i = begin; i < end; ++i) log_sums[i] += std::log(sums[i]);
    });
}

}  // namespace
}  // namespace weft

// rows: [count, columns]; log_sums: [count]. A row of nothing but -inf becomes zeros.
WEFT_API int weft_row_softmax(void* rows, void* log_sums, int64_t count, int64_t columns, int dtype,
                              int threads) {
    using namespace weft;
    return guarded([&](Status& status) {
        if (dtype == kFloat32)
            softmax(static_cast<float*>(rows), static_cast<float*>(log_sums), count, columns, threads);
        else if (dtype == kFloat64)
            softmax(static_cast<double*>(rows), static_cast<double*>(log_sums), count, columns, threads);
        if (dtype == kFloat32 || dtype == kFloat64) status = kOk;
    });
}
