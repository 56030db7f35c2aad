// Streaming partitioners: each step depends on all before it, so they are loops of one thread.
// The definitions, a plain Python form and what the options mean are in src/weft/partitioners/{ldg,libra}.py.
#include <algorithm>
#include <new>
#include <vector>

#include "core.h"
#include "draw.h"

namespace weft {
namespace {

// Edges by one of their ends: those of rows whose pointers lie in first … first + count.
template <class Id>
struct Ends {
    const int64_t* indptr;
    const Id* ids;
    int64_t first, count;
};

// Adds the other ends of a node's edges, without the node itself; false where edges or ends are not there.
template <class Id>
bool collect(const Ends<Id>& ends, int64_t node, int64_t num_nodes, std::vector<int64_t>& near) {
    const int64_t begin = ends.indptr[node] - ends.first, end = ends.indptr[node + 1] - ends.first;
    if (begin < 0 || end < begin || end > ends.count) return false;
    for (int64_t e = begin; e < end; ++e) {
        const int64_t other = ends.ids[e];
        if (other < 0 || other >= num_nodes) return false;
        if (other != node) near.push_back(other);
    }
    return true;
}

// One node after the other goes where most of its neighbours are, weighed by the room that is left. A
// neighbour by several edges, or by one each way, counts once.
template <class Id>
bool stream_nodes(const Ends<Id>& into, const Ends<Id>& out_of, const double* weight, const int64_t* order,
                  int64_t steps, int64_t num_nodes, int64_t num_parts, double capacity, double* load,
                  int32_t* parts) {
    std::vector<int64_t> neighbours(num_parts, 0), near;
    std::vector<int32_t> touched;
    for (int64_t step = 0; step < steps; ++step) {
        const int64_t node = order[step];
        near.clear();
        if (node < 0 || node >= num_nodes) return false;
        if (!collect(into, node, num_nodes, near) || !collect(out_of, node, num_nodes, near)) return false;
        std::sort(near.begin(), near.end());
        near.erase(std::unique(near.begin(), near.end()), near.end());
        for (const int64_t other : near) {
            const int32_t part = parts[other];
            if (part < 0) continue;
            if (neighbours[part]++ == 0) touched.push_back(part);
        }
        int64_t best = -1;
        double best_score = 0.0;
        for (const int32_t part : touched) {
            const double score = static_cast<double>(neighbours[part]) * (1.0 - load[part] / capacity);
            neighbours[part] = 0;
            if (score <= 0.0 || score < best_score) continue;
            const bool tie = best >= 0 && score == best_score;
            if (tie && (load[part] > load[best] || (load[part] == load[best] && part > best))) continue;
            best = part;
            best_score = score;
        }
        touched.clear();
        if (best < 0) best = std::min_element(load, load + num_parts) - load;
        parts[node] = static_cast<int32_t>(best);
        load[best] += weight[node];
    }
    return true;
}

// The parts that hold each node, as bits.
class Holders {
  public:
    Holders(int64_t num_nodes, int64_t num_parts)
        : words_((num_parts + 63) / 64), bits_(static_cast<size_t>(num_nodes * words_), 0) {}

    int64_t words() const { return words_; }
    const uint64_t* of(int64_t node) const { return bits_.data() + node * words_; }
    void add(int64_t node, int64_t part) { bits_[node * words_ + part / 64] |= 1ull << (part % 64); }

  private:
    int64_t words_;
    std::vector<uint64_t> bits_;
};

bool any(const std::vector<uint64_t>& set) {
    for (const uint64_t word : set)
        if (word) return true;
    return false;
}

// The least loaded part of a set; among equals the one with the smallest draw.
int64_t least_loaded(const std::vector<uint64_t>& set, const std::vector<int64_t>& load, uint64_t row) {
    int64_t best = -1;
    uint32_t best_draw = 0;
    for (size_t word = 0; word < set.size(); ++word) {
        for (uint64_t bits = set[word]; bits; bits &= bits - 1) {
            const int64_t part = static_cast<int64_t>(word) * 64 + __builtin_ctzll(bits);
            if (best >= 0 && load[part] > load[best]) continue;
            const uint32_t drawn = draw(row, static_cast<uint32_t>(part));
            if (best >= 0 && load[part] == load[best] && drawn >= best_draw) continue;
            best = part;
            best_draw = drawn;
        }
    }
    return best;
}

}  // namespace
}  // namespace weft

// Streams some nodes: `order` has `steps` of them. Edges by destination and by source: row pointers of all
// nodes, and the ends of edges first … first + count, in which those of the given nodes lie. weight:
// [num_nodes]. `load` [num_parts] and `parts` [num_nodes] (-1 at first) go from one call to the next.
WEFT_API int weft_stream_ldg(const int64_t* in_indptr, const void* in_ids, int64_t in_first, int64_t in_count,
                             const int64_t* out_indptr, const void* out_ids, int64_t out_first,
                             int64_t out_count, int index, const double* weight, const int64_t* order,
                             int64_t steps, int64_t num_nodes, int64_t num_parts, double capacity,
                             double* load, int32_t* parts) {
    using namespace weft;
    if (num_nodes < 1 || num_parts < 1 || !(capacity > 0.0)) return kBadArgument;
    const auto stream = [&](auto id) {
        using Id = decltype(id);
        const Ends<Id> into{in_indptr, static_cast<const Id*>(in_ids), in_first, in_count};
        const Ends<Id> out_of{out_indptr, static_cast<const Id*>(out_ids), out_first, out_count};
        return stream_nodes(into, out_of, weight, order, steps, num_nodes, num_parts, capacity, load, parts);
    };
    try {
        return (index == kInt32 ? stream(int32_t{}) : stream(int64_t{})) ? kOk : kBadIndex;
    } catch (const std::bad_alloc&) {
        return kNoMemory;
    }
}

// src, dst and parts (out): [num_edges]; degree: [num_nodes]; `order` is a permutation of the edges. Loads
// count edges in 64 bits. A part with `limit` edges takes no more.
WEFT_API int weft_partition_libra(const int64_t* src, const int64_t* dst, const int64_t* degree,
                                  const int64_t* order, int64_t num_nodes, int64_t num_edges,
                                  int64_t num_parts, int64_t limit, uint64_t key, int32_t* parts) {
    using namespace weft;
    if (num_nodes < 1 || num_parts < 1 || limit * num_parts < num_edges) return kBadArgument;
    try {
        Holders holders(num_nodes, num_parts);
        std::vector<int64_t> load(num_parts, 0);
        const int64_t words = holders.words();
        std::vector<uint64_t> open(words, 0), chosen(words, 0);
        for (int64_t part = 0; part < num_parts; ++part) open[part / 64] |= 1ull << (part % 64);
        for (int64_t step = 0; step < num_edges; ++step) {
            const int64_t edge = order[step], u = src[edge], v = dst[edge];
            if (u < 0 || u >= num_nodes || v < 0 || v >= num_nodes) return kBadIndex;
            const uint64_t *of_u = holders.of(u), *of_v = holders.of(v);
            bool has_u = false, has_v = false, common = false;
            for (int64_t w = 0; w < words; ++w) {
                has_u |= (of_u[w] & open[w]) != 0;
                has_v |= (of_v[w] & open[w]) != 0;
                common |= (of_u[w] & of_v[w] & open[w]) != 0;
            }
            const uint64_t* smaller = degree[u] <= degree[v] ? of_u : of_v;
            for (int64_t w = 0; w < words; ++w) {
                if (common)
                    chosen[w] = of_u[w] & of_v[w] & open[w];
                else if (has_u && has_v)
                    chosen[w] = smaller[w] & open[w];
                else
                    chosen[w] = (of_u[w] | of_v[w]) & open[w];
            }
            const int64_t part = least_loaded(any(chosen) ? chosen : open, load, row_key(key, edge));
            holders.add(u, part);
            holders.add(v, part);
            if (++load[part] == limit) open[part / 64] &= ~(1ull << (part % 64));
            parts[edge] = static_cast<int32_t>(part);
        }
    } catch (const std::bad_alloc&) {
        return kNoMemory;
    }
    return kOk;
}
