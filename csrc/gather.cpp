// Rows of a matrix by index: copies of bytes, prefetched some rows ahead.
#include <atomic>
#include <cstring>

#include "core.h"

namespace weft {
namespace {

constexpr int64_t kAhead = 8;
constexpr int64_t kLongest =
    1024;  // bytes of a row that are prefetched; the hardware follows longer ones itself

// Bytes > 0: the size of a row, known to the compiler, so that a copy is a few moves.
template <int64_t Bytes, class I>
bool copy_rows(const char* x, int64_t num_rows, const I* rows, char* out, int64_t row_bytes, int64_t first,
               int64_t last) {
    const int64_t size = Bytes > 0 ? Bytes : row_bytes, fetched = size < kLongest ? size : kLongest;
    for (int64_t i = first; i < last; ++i) {
        if (i + kAhead < last) {
            // A number: this row may be none of x, and is looked at later.
            const uint64_t ahead =
                reinterpret_cast<uint64_t>(x) + static_cast<uint64_t>(rows[i + kAhead]) * size;
            for (int64_t at = 0; at < fetched; at += 64)
                __builtin_prefetch(reinterpret_cast<const char*>(ahead + at));
        }
        if (static_cast<uint64_t>(rows[i]) >= static_cast<uint64_t>(num_rows)) return false;
        if (size > 0) std::memcpy(out + i * size, x + static_cast<int64_t>(rows[i]) * size, size);
    }
    return true;
}

template <class I>
bool copy_block(const char* x, int64_t num_rows, const I* rows, char* out, int64_t row_bytes, int64_t first,
                int64_t last) {
    switch (row_bytes) {
        case 4:
            return copy_rows<4>(x, num_rows, rows, out, row_bytes, first, last);
        case 8:
            return copy_rows<8>(x, num_rows, rows, out, row_bytes, first, last);
        case 32:
            return copy_rows<32>(x, num_rows, rows, out, row_bytes, first, last);
        case 64:
            return copy_rows<64>(x, num_rows, rows, out, row_bytes, first, last);
        case 128:
            return copy_rows<128>(x, num_rows, rows, out, row_bytes, first, last);
    }
    return copy_rows<0>(x, num_rows, rows, out, row_bytes, first, last);
}

}  // namespace
}  // namespace weft

WEFT_API int weft_gather(const void* x, int64_t num_rows, const void* rows, int64_t count, int64_t row_bytes,
                         void* out, int index, int threads) {
    using namespace weft;
    return guarded([&](Status& status) {
        std::atomic<bool> bad{false};
        const int64_t grain = 1 + 65536 / (row_bytes + 16);
        parallel_blocks(
            worth(threads, count * (row_bytes / 4 + 8)), count, grain, [&](int64_t first, int64_t last) {
                const char* from = static_cast<const char*>(x);
                char* to = static_cast<char*>(out);
                const bool good = index == kInt32
                                      ? copy_block(from, num_rows, static_cast<const int32_t*>(rows), to,
                                                   row_bytes, first, last)
                                      : copy_block(from, num_rows, static_cast<const int64_t*>(rows), to,
                                                   row_bytes, first, last);
                if (!good) bad = true;
            });
        status = bad ? kBadIndex : kOk;
    });
}
