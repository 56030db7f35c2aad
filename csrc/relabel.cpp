// Distinct ids in order of first appearance, and the place of each id among them.
//
// Where the ids are dense enough they address a table directly, else a hash table with linear probing. One
// thread: the order of first appearance is sequential by nature, and a table that fits the caches does 100
// million ids a second.
#include "core.h"
#include "draw.h"

namespace weft {
namespace {

constexpr int64_t kAhead = 16;

struct Slot {
    int64_t id, place;
};

int64_t by_table(const int64_t* ids, int64_t count, int64_t bound, int64_t* unique, int64_t* local) {
    std::vector<int64_t> places(bound, -1);
    int64_t num_unique = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (i + kAhead < count) __builtin_prefetch(&places[ids[i + kAhead]], 1);
        int64_t& place = places[ids[i]];
        if (place < 0) {
            place = num_unique;
            unique[num_unique++] = ids[i];
        }
        local[i] = place;
    }
    return num_unique;
}

int64_t by_hash(const int64_t* ids, int64_t count, int64_t* unique, int64_t* local) {
    int bits = 4;
    while ((int64_t{1} << bits) < 2 * count) ++bits;
    const uint64_t mask = (uint64_t{1} << bits) - 1;
    std::vector<Slot> slots(mask + 1, Slot{0, -1});
    const auto home = [&](int64_t id) { return (static_cast<uint64_t>(id) * kGolden64) >> (64 - bits); };
    int64_t num_unique = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (i + kAhead < count) __builtin_prefetch(&slots[home(ids[i + kAhead])], 1);
        uint64_t at = home(ids[i]);
        while (slots[at].place >= 0 && slots[at].id != ids[i]) at = (at + 1) & mask;
        if (slots[at].place < 0) {
            slots[at] = {ids[i], num_unique};
            unique[num_unique++] = ids[i];
        }
        local[i] = slots[at].place;
    }
    return num_unique;
}

}  // namespace
}  // namespace weft

// ids, unique and local: [count]. Of unique *num_unique numbers are set; local: each id's place among them.
WEFT_API int weft_relabel(const int64_t* ids, int64_t count, int64_t* unique, int64_t* local,
                          int64_t* num_unique) {
    using namespace weft;
    return guarded([&](Status& status) {
        int64_t least = 0, most = -1;
        for (int64_t i = 0; i < count; ++i) {
            least = ids[i] < least ? ids[i] : least;
            most = ids[i] > most ? ids[i] : most;
        }
        const bool dense = least >= 0 && most < 4 * count + 1024;
        *num_unique =
            dense ? by_table(ids, count, most + 1, unique, local) : by_hash(ids, count, unique, local);
        status = kOk;
    });
}
