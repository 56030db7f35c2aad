// Building and transposing CSR by stable counting sorts: deterministic for any number of threads.
//
// Keys are first distributed to at most 1024 buckets of neighbouring keys, thread by thread into places known
// from the counts, then each bucket is counted and sorted on its own: both passes stay within the caches, and
// the second needs no histogram a thread.
#include <algorithm>
#include <atomic>
#include <memory>

#include "core.h"

namespace weft {
namespace {

constexpr int64_t kMaxBuckets = 1024;

// What travels with a key: its position and, where it is asked for, the row it was found in.
template <class O, bool WithRow>
struct Entry {
    uint32_t low;  // key - first key of the bucket
    O position;
    void set_row(O) {}
};
template <class O>
struct Entry<O, true> {
    uint32_t low;
    O position, row;
    void set_row(O found) { row = found; }
};

struct Buckets {
    int shift;
    int64_t count;

    explicit Buckets(int64_t num_keys) : shift(0) {
        while ((num_keys - 1) >> shift >= kMaxBuckets) ++shift;
        count = num_keys > 0 ? ((num_keys - 1) >> shift) + 1 : 0;
    }
};

// Row of a position, found once and then followed.
struct RowOf {
    const int64_t* indptr;
    int64_t row;

    RowOf(const int64_t* pointers, int64_t num_rows, int64_t position) : indptr(pointers), row(0) {
        if (indptr) row = std::upper_bound(indptr, indptr + num_rows + 1, position) - indptr - 1;
    }
    int64_t operator()(int64_t position) {
        if (indptr)
            while (indptr[row + 1] <= position) ++row;
        return row;
    }
};

// Distributes positions 0 … size - 1 to the buckets of their keys, in order. starts[b] is where bucket b
// begins.
template <class K, class O, bool WithRow>
bool distribute(const K* keys, int64_t size, int64_t num_keys, const Buckets& buckets, const int64_t* indptr,
                int64_t num_rows, Entry<O, WithRow>* entries, std::vector<int64_t>& starts, int threads) {
    const int64_t chunks = threads, chunk = (size + chunks - 1) / chunks,
                  mask = (int64_t{1} << buckets.shift) - 1;
    std::vector<int64_t> places(chunks * buckets.count, 0);
    std::atomic<bool> bad{false};
    const auto each_chunk = [&](const auto& body) {
        parallel(threads, chunks, [&](int64_t c) {
            body(c * chunk < size ? c * chunk : size, (c + 1) * chunk < size ? (c + 1) * chunk : size,
                 places.data() + c * buckets.count);
        });
    };
    each_chunk([&](int64_t begin, int64_t end, int64_t* counts) {
        for (int64_t i = begin; i < end; ++i) {
            if (static_cast<uint64_t>(keys[i]) >= static_cast<uint64_t>(num_keys)) {
                bad = true;
                return;
            }
            ++counts[static_cast<int64_t>(keys[i]) >> buckets.shift];
        }
    });
    if (bad) return false;
    int64_t place = 0;
    for (int64_t b = 0; b < buckets.count; ++b) {
        starts[b] = place;
        for (int64_t c = 0; c < chunks; ++c) {
            const int64_t count = places[c * buckets.count + b];
            places[c * buckets.count + b] = place;
            place += count;
        }
    }
    starts[buckets.count] = place;
    each_chunk([&](int64_t begin, int64_t end, int64_t* cursors) {
        RowOf row(indptr, num_rows, begin);
        for (int64_t i = begin; i < end; ++i) {
            const int64_t key = static_cast<int64_t>(keys[i]);
            Entry<O, WithRow>& entry = entries[cursors[key >> buckets.shift]++];
            entry.low = static_cast<uint32_t>(key & mask);
            entry.position = static_cast<O>(i);
            entry.set_row(static_cast<O>(row(i)));
        }
    });
    return true;
}

// Calls on_bucket(first key, number of keys, first entry, number of entries) for every bucket, in parallel.
template <class OnBucket>
void each_bucket(const Buckets& buckets, int64_t num_keys, const std::vector<int64_t>& starts, int threads,
                 const OnBucket& on_bucket) {
    parallel(threads, buckets.count, [&](int64_t b) {
        const int64_t first = b << buckets.shift, last = std::min(num_keys, (b + 1) << buckets.shift);
        on_bucket(first, last - first, starts[b], starts[b + 1] - starts[b]);
    });
}

// Writes the row pointers of one bucket's keys and returns the place of each key's first entry.
template <class E>
std::vector<int64_t> count_bucket(const E* entries, int64_t count, int64_t num_keys, int64_t start,
                                  int64_t* pointers) {
    std::vector<int64_t> cursors(num_keys + 1, 0);
    for (int64_t i = 0; i < count; ++i) ++cursors[entries[i].low + 1];
    cursors[0] = start;
    for (int64_t k = 0; k < num_keys; ++k) cursors[k + 1] += cursors[k];
    std::copy(cursors.begin(), cursors.end() - 1, pointers);
    return cursors;
}

// Groups positions by key: pointers [num_keys + 1], positions [size] and, where asked for, the row of each.
template <bool WithRow, class K, class O>
Status group(const int64_t* indptr, int64_t num_rows, const K* keys, int64_t size, int64_t num_keys,
             int64_t* pointers, O* rows, O* positions, int threads) {
    threads = worth(threads, size * 8);
    const Buckets buckets(num_keys);
    std::vector<int64_t> starts(buckets.count + 1, 0);
    const std::unique_ptr<Entry<O, WithRow>[]> entries(new Entry<O, WithRow>[size]);
    if (!distribute(keys, size, num_keys, buckets, indptr, num_rows, entries.get(), starts, threads))
        return kBadIndex;
    each_bucket(buckets, num_keys, starts, threads,
                [&](int64_t key, int64_t keys_here, int64_t start, int64_t count) {
                    const Entry<O, WithRow>* here = entries.get() + start;
                    std::vector<int64_t> cursors =
                        count_bucket(here, count, keys_here, start, pointers + key);
                    for (int64_t i = 0; i < count; ++i) {
                        const int64_t place = cursors[here[i].low]++;
                        positions[place] = here[i].position;
                        if constexpr (WithRow) rows[place] = here[i].row;
                    }
                });
    pointers[num_keys] = size;
    return kOk;
}

// An edge within its destination: relation and source in one number, then position.
struct Edge {
    uint64_t key;
    int64_t position;

    bool operator<(const Edge& other) const {
        return key != other.key ? key < other.key : position < other.position;
    }
};

// A row of more edges is sorted in runs of this many, merged two by two.
constexpr int64_t kRun = int64_t{1} << 16;

void sort_row(Edge* row, int64_t count, int threads) {
    if (std::is_sorted(row, row + count)) return;
    if (count <= kRun || threads == 1) return std::sort(row, row + count);
    const std::unique_ptr<Edge[]> spare(new Edge[count]);
    parallel_blocks(threads, count, kRun,
                    [&](int64_t begin, int64_t end) { std::sort(row + begin, row + end); });
    Edge *from = row, *to = spare.get();
    for (int64_t run = kRun; run < count; run *= 2) {
        parallel_blocks(threads, count, 2 * run, [&](int64_t begin, int64_t end) {
            const Edge* middle = from + std::min(begin + run, end);
            std::merge(static_cast<const Edge*>(from) + begin, middle, middle,
                       static_cast<const Edge*>(from) + end, to + begin);
        });
        std::swap(from, to);
    }
    if (from != row) std::copy(from, from + count, row);
}

template <class O>
struct Build {
    const int64_t *src, *dst, *relation;
    int64_t *indptr, *edge_ids;
    O* indices;

    // Sorts the edges of one bucket and writes them: short rows side by side, then hubs one after another.
    void bucket(const Entry<int64_t, false>* here, int64_t key, int64_t keys_here, int64_t start,
                int64_t count, int threads) const {
        std::vector<int64_t> cursors = count_bucket(here, count, keys_here, start, indptr + key);
        const std::unique_ptr<Edge[]> edges(new Edge[count]);
        for (int64_t i = 0; i < count; ++i) {
            const int64_t at = here[i].position;
            const uint64_t upper = relation ? static_cast<uint64_t>(relation[at]) << 32 : 0;
            edges[cursors[here[i].low]++ - start] = {upper | static_cast<uint64_t>(src[at]), at};
        }
        const auto sort_rows = [&](int64_t first, int64_t last, bool hubs) {
            for (int64_t k = first; k < last; ++k) {  // cursors[k] has moved to the end of row k
                const int64_t begin = indptr[key + k], length = cursors[k] - begin;
                if ((length > kRun) == hubs)
                    sort_row(edges.get() + begin - start, length, hubs ? threads : 1);
            }
        };
        parallel_blocks(threads, keys_here, 64,
                        [&](int64_t first, int64_t last) { sort_rows(first, last, false); });
        sort_rows(0, keys_here, true);
        for (int64_t i = 0; i < count; ++i) {
            indices[start + i] = static_cast<O>(edges[i].key & 0xFFFFFFFFull);
            edge_ids[start + i] = edges[i].position;
        }
    }

    Status run(int64_t size, int64_t num_dst, int threads) const {
        threads = worth(threads, size * 16);
        const Buckets buckets(num_dst);
        std::vector<int64_t> starts(buckets.count + 1, 0);
        const std::unique_ptr<Entry<int64_t, false>[]> entries(new Entry<int64_t, false>[size]);
        if (!distribute(dst, size, num_dst, buckets, nullptr, 0, entries.get(), starts, threads))
            return kBadIndex;
        // A bucket with more than its share of the edges has hubs in it: the threads do it together, else
        // all would wait for the one that has it.
        const int64_t share = std::max(kRun, size / (4 * threads));
        each_bucket(buckets, num_dst, starts, threads,
                    [&](int64_t key, int64_t keys_here, int64_t start, int64_t count) {
                        if (count <= share) bucket(entries.get() + start, key, keys_here, start, count, 1);
                    });
        each_bucket(buckets, num_dst, starts, 1,
                    [&](int64_t key, int64_t keys_here, int64_t start, int64_t count) {
                        if (count > share)
                            bucket(entries.get() + start, key, keys_here, start, count, threads);
                    });
        indptr[num_dst] = size;
        return kOk;
    }
};

}  // namespace
}  // namespace weft

// Groups the positions of `keys` [size] (of type `index`) by key. With indptr [num_rows + 1], `rows` [size]
// gets the row of each position: the transposed CSR. Out: pointers [num_keys + 1], positions [size] and rows,
// these two of type `out_index`.
WEFT_API int weft_group(const int64_t* indptr, int64_t num_rows, const void* keys, int64_t size,
                        int64_t num_keys, int64_t* pointers, void* rows, void* positions, int index,
                        int out_index, int threads) {
    using namespace weft;
    if (indptr && bad_pointers(indptr, num_rows, size)) return kBadPointers;
    return guarded([&](Status& status) {
        const auto run = [&](auto key, auto out) {
            using K = decltype(key);
            using O = decltype(out);
            const auto grouped = rows ? group<true, K, O> : group<false, K, O>;
            status = grouped(indptr, num_rows, static_cast<const K*>(keys), size, num_keys, pointers,
                             static_cast<O*>(rows), static_cast<O*>(positions), threads);
        };
        if (index == kInt32)
            out_index == kInt32 ? run(int32_t{}, int32_t{}) : run(int32_t{}, int64_t{});
        else
            out_index == kInt32 ? run(int64_t{}, int32_t{}) : run(int64_t{}, int64_t{});
    });
}

// Edges by destination, relation, source, position: src, dst and relation are [size], relation may be null,
// sources and relations are below 2^32. Out: indptr [num_dst + 1], indices [size] of type `out_index`, and
// edge_ids [size], the position that each edge came from.
WEFT_API int weft_build_csr(const int64_t* src, const int64_t* dst, const int64_t* relation, int64_t size,
                            int64_t num_dst, int64_t* indptr, void* indices, int64_t* edge_ids, int out_index,
                            int threads) {
    using namespace weft;
    return guarded([&](Status& status) {
        const auto run = [&](auto index) {
            using O = decltype(index);
            const Build<O> build{src, dst, relation, indptr, edge_ids, static_cast<O*>(indices)};
            status = build.run(size, num_dst, threads);
        };
        out_index == kInt32 ? run(int32_t{}) : run(int64_t{});
    });
}
