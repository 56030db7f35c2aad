// Sums of moduli of differences between many rows and many others, which no product of matrices gives.
#define WEFT_KERNELS "distance_kernels.h"
#include "each_isa.h"

namespace weft {
namespace {

constexpr int64_t kRows = 16;

template <class Work>
bool with_number(int dtype, const Work& work) {
    if (dtype == kFloat32) work(float{});
    if (dtype == kFloat64) work(double{});
    return dtype == kFloat32 || dtype == kFloat64;
}

}  // namespace
}  // namespace weft

// x: [batches, n, parts * numbers]; y: [batches, parts * numbers, m]; out: [batches, n, m].
WEFT_API int weft_distance_sums(const void* x, const void* y, void* out, int64_t batches, int64_t n,
                                int64_t m, int64_t numbers, int parts, int dtype, int threads) {
    using namespace weft;
    return guarded([&](Status& status) {
        const bool known = with_number(dtype, [&](auto value) {
            using T = decltype(value);
            for (int64_t batch = 0; batch < batches; ++batch) {
                const T* rows = static_cast<const T*>(x) + batch * n * parts * numbers;
                const T* others = static_cast<const T*>(y) + batch * m * parts * numbers;
                T* to = static_cast<T*>(out) + batch * n * m;
                parallel_blocks(threads, n, kRows, [&](int64_t first, int64_t last) {
                    if (parts == 2)
                        WEFT_CALL(distance_sums<2>, rows, others, to, numbers, m, first, last);
                    else
                        WEFT_CALL(distance_sums<1>, rows, others, to, numbers, m, first, last);
                });
            }
        });
        if (known) status = kOk;
    });
}

// The gradient by x of what is above, where y is [batches, m, parts * numbers] and grad [batches, n, m].
WEFT_API int weft_distance_slopes(const void* x, const void* y, const void* grad, void* out, int64_t batches,
                                  int64_t n, int64_t m, int64_t numbers, int parts, int dtype, int threads) {
    using namespace weft;
    return guarded([&](Status& status) {
        const bool known = with_number(dtype, [&](auto value) {
            using T = decltype(value);
            for (int64_t batch = 0; batch < batches; ++batch) {
                const int64_t at = batch * n * parts * numbers;
                const T* others = static_cast<const T*>(y) + batch * m * parts * numbers;
                const T* slopes = static_cast<const T*>(grad) + batch * n * m;
                parallel_blocks(threads, n, kRows, [&](int64_t first, int64_t last) {
                    if (parts == 2)
                        WEFT_CALL(distance_slopes<2>, static_cast<const T*>(x) + at, others, slopes,
                                  static_cast<T*>(out) + at, numbers, m, first, last);
                    else
                        WEFT_CALL(distance_slopes<1>, static_cast<const T*>(x) + at, others, slopes,
                                  static_cast<T*>(out) + at, numbers, m, first, last);
                });
            }
        });
        if (known) status = kOk;
    });
}
