#include "core.h"

#include <atomic>

namespace weft {
namespace {

int detect() {
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512cd"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
        return 1;
#endif
    return 0;
}

const int kDetected = detect();
std::atomic<int> chosen{kDetected};

}  // namespace

int level() { return chosen.load(std::memory_order_relaxed); }

Plan make_plan(const int64_t* indptr, int64_t num_rows) {
    Plan plan;
    const int64_t total = indptr[num_rows] + kRowWork * num_rows;
    const int64_t blocks = 1 + total / kBlockWork;
    plan.bounds.reserve(blocks + 1);
    plan.bounds.push_back(0);
    for (int64_t block = 1; block < blocks; ++block) {
        const int64_t target = block * kBlockWork;
        int64_t low = plan.bounds.back(), high = num_rows;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (indptr[middle] + kRowWork * middle < target)
                low = middle + 1;
            else
                high = middle;
        }
        plan.bounds.push_back(low);
    }
    plan.bounds.push_back(num_rows);
    if (indptr[num_rows] > kHub) {
        for (int64_t row = 0; row < num_rows; ++row) {
            if (indptr[row + 1] - indptr[row] <= kHub) continue;
            plan.first_piece.push_back(static_cast<int64_t>(plan.pieces.size()));
            for (int64_t begin = indptr[row]; begin < indptr[row + 1]; begin += kHub) {
                const int64_t end = begin + kHub < indptr[row + 1] ? begin + kHub : indptr[row + 1];
                plan.pieces.push_back({row, begin, end});
            }
        }
    }
    plan.first_piece.push_back(static_cast<int64_t>(plan.pieces.size()));
    return plan;
}

}  // namespace weft

// Raised whenever a signature of the C interface changes; the Python side refuses another number.
WEFT_API int weft_abi_version() { return 17; }

WEFT_API int weft_detected_level() { return weft::kDetected; }

// Chooses the instruction set, at most the detected one; tests run every form the machine has.
WEFT_API int weft_set_level(int wanted) {
    if (wanted < 0 || wanted > weft::kDetected) return weft::kBadArgument;
    weft::chosen.store(wanted);
    return weft::kOk;
}

// The instruction set in use. The kernels of each_isa.h have one form only where the compiler is not GCC.
WEFT_API const char* weft_features() {
#if defined(__clang__)
    static const char* const names[] = {"portable", "portable, attention AVX2",
                                        "portable, attention AVX-512"};
#else
    static const char* const names[] = {"portable", "AVX2", "AVX-512"};
#endif
    return names[weft::level()];
}
