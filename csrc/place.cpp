// Rows copied to places: how rows from a cache and rows from behind it become one matrix.
#include <atomic>
#include <cstring>

#include "core.h"

namespace weft {
namespace {

constexpr int64_t kAhead = 8;

// out[places[i]] = x[rows[i]]; a null array counts 0, 1, …; a negative row is left out.
struct Copy {
    const char* x;
    const int32_t* rows;
    const int64_t* places;
    char* out;
    int64_t num_rows, num_places, row_bytes;

    int64_t row(int64_t i) const { return rows ? rows[i] : i; }
    int64_t place(int64_t i) const { return places ? places[i] : i; }

    bool run(int64_t first, int64_t last) const {
        for (int64_t i = first; i < last; ++i) {
            if (i + kAhead < last && row(i + kAhead) >= 0)
                __builtin_prefetch(x + row(i + kAhead) * row_bytes);
            const int64_t from = row(i), to = place(i);
            if (from < 0) continue;
            if (from >= num_rows || static_cast<uint64_t>(to) >= static_cast<uint64_t>(num_places))
                return false;
            std::memcpy(out + to * row_bytes, x + from * row_bytes, row_bytes);
        }
        return true;
    }
};

}  // namespace
}  // namespace weft

// Copies row rows[i] of x [num_rows, row_bytes] to row places[i] of out [num_places, row_bytes], for i below
// `count`; rows and places may be null: i itself. A negative row is left out.
WEFT_API int weft_place_rows(const void* x, int64_t num_rows, const int32_t* rows, const int64_t* places,
                             int64_t num_places, int64_t count, int64_t row_bytes, void* out, int threads) {
    using namespace weft;
    return guarded([&](Status& status) {
        const Copy copy{static_cast<const char*>(x),
                        rows,
                        places,
                        static_cast<char*>(out),
                        num_rows,
                        num_places,
                        row_bytes};
        std::atomic<bool> bad{false};
        const int64_t grain = 1 + 65536 / (row_bytes + 16);
        parallel_blocks(worth(threads, count * (row_bytes / 4 + 8)), count, grain,
                        [&](int64_t first, int64_t last) {
                            if (!copy.run(first, last)) bad = true;
                        });
        status = bad ? kBadIndex : kOk;
    });
}
