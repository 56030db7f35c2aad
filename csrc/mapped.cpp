// Rows of a mapped file by index: the pages of coming rows are asked for before they are touched, so that the
// disk reads many at once and nothing between them. Rows that are in memory already cost no system call.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "core.h"

namespace weft {
namespace {

constexpr int64_t kWindow = 1024;  // rows asked for together
constexpr int64_t kProbes = 16;    // rows of a window looked at to see whether it is in memory

struct Map {
    const char* base;
    int64_t row_bytes, page;

    char* first_page(int64_t row) const {
        const auto at = reinterpret_cast<uintptr_t>(base + row * row_bytes);
        return reinterpret_cast<char*>(at / page * page);
    }
    char* end(int64_t row) const { return const_cast<char*>(base) + (row + 1) * row_bytes; }
};

bool resident(const Map& map, int64_t row) {
    unsigned char state[1] = {0};
    return mincore(map.first_page(row), 1, state) == 0 && (state[0] & 1);
}

template <class I>
void ask_for(const Map& map, const I* rows, int64_t count, std::vector<int64_t>& order) {
    const int64_t step = std::max<int64_t>(1, count / kProbes);
    bool all = true;
    for (int64_t i = 0; i < count && all; i += step) all = resident(map, rows[i]);
    if (all) return;
    order.assign(rows, rows + count);
    std::sort(order.begin(), order.end());
    char* begin = map.first_page(order[0]);
    char* end = map.end(order[0]);
    for (int64_t row : order) {  // one call for each run of pages
        char* page = map.first_page(row);
        if (page > end) {
            madvise(begin, end - begin, MADV_WILLNEED);
            begin = page;
        }
        end = std::max(end, map.end(row));
    }
    madvise(begin, end - begin, MADV_WILLNEED);
}

template <class I>
bool copy_mapped(const Map& map, int64_t num_rows, const I* rows, char* out, int64_t first, int64_t last) {
    std::vector<int64_t> order;
    for (int64_t i = first; i < last; ++i)
        if (static_cast<uint64_t>(rows[i]) >= static_cast<uint64_t>(num_rows)) return false;
    for (int64_t asked = first; asked < last; asked += kWindow) {
        if (asked == first) ask_for(map, rows + asked, std::min(kWindow, last - asked), order);
        const int64_t next = asked + kWindow;  // the disk works on the next window while this one is copied
        if (next < last) ask_for(map, rows + next, std::min(kWindow, last - next), order);
        for (int64_t i = asked; i < std::min(next, last); ++i)
            std::memcpy(out + i * map.row_bytes, map.base + static_cast<int64_t>(rows[i]) * map.row_bytes,
                        map.row_bytes);
    }
    return true;
}

}  // namespace
}  // namespace weft

WEFT_API int weft_gather_mapped(const void* x, int64_t num_rows, const void* rows, int64_t count,
                                int64_t row_bytes, void* out, int index, int threads) {
    using namespace weft;
    return guarded([&](Status& status) {
        if (row_bytes == 0) {
            status = kOk;
            return;
        }
        const Map map{static_cast<const char*>(x), row_bytes, sysconf(_SC_PAGESIZE)};
        std::atomic<bool> bad{false};
        parallel_blocks(
            worth(threads, count * (row_bytes / 4 + 8)), count, 8 * kWindow,
            [&](int64_t first, int64_t last) {
                char* to = static_cast<char*>(out);
                const bool good =
                    index == kInt32
                        ? copy_mapped(map, num_rows, static_cast<const int32_t*>(rows), to, first, last)
                        : copy_mapped(map, num_rows, static_cast<const int64_t*>(rows), to, first, last);
                if (!good) bad = true;
            });
        status = bad ? kBadIndex : kOk;
    });
}
