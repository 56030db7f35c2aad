// Streaming partitioners: each step depends on all before it, so they are loops of one thread.
// The definitions, a plain Python form and what the options mean are in src/weft/partitioners/{ldg,libra}.py.
#include <new>
#include <vector>

#include "core.h"
#include "draw.h"

namespace weft {
namespace {

bool bad_csr(const int64_t* indptr, const int64_t* indices, int64_t num_nodes, int64_t num_edges) {
    if (indptr[0] != 0 || indptr[num_nodes] != num_edges) return true;
    for (int64_t v = 0; v < num_nodes; ++v)
        if (indptr[v + 1] < indptr[v]) return true;
    for (int64_t e = 0; e < num_edges; ++e)
        if (indices[e] < 0 || indices[e] >= num_nodes) return true;
    return false;
}

int64_t least_loaded(const std::vector<double>& load) {
    int64_t best = 0;
    for (size_t part = 1; part < load.size(); ++part)
        if (load[part] < load[best]) best = static_cast<int64_t>(part);
    return best;
}

// One node after the other goes where most of its neighbours are, weighed by the room that is left.
void stream_nodes(const int64_t* indptr, const int64_t* indices, const double* weight, const int64_t* order,
                  int64_t num_nodes, double capacity, std::vector<double>& load, int32_t* parts) {
    std::vector<int64_t> neighbours(load.size(), 0);
    std::vector<int32_t> touched;
    for (int64_t step = 0; step < num_nodes; ++step) {
        const int64_t node = order[step];
        for (int64_t e = indptr[node]; e < indptr[node + 1]; ++e) {
            const int32_t part = parts[indices[e]];
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
        if (best < 0) best = least_loaded(load);
        parts[node] = static_cast<int32_t>(best);
        load[best] += weight[node];
    }
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

// Neighbours are given by CSR in both directions; `order` is a permutation of the nodes; `parts` starts at
// -1.
WEFT_API int weft_partition_ldg(const int64_t* indptr, const int64_t* indices, const double* weight,
                                const int64_t* order, int64_t num_nodes, int64_t num_edges, int64_t num_parts,
                                double capacity, int passes, int32_t* parts) {
    using namespace weft;
    if (num_nodes < 1 || num_parts < 1 || !(capacity > 0.0)) return kBadArgument;
    if (bad_csr(indptr, indices, num_nodes, num_edges)) return kBadIndex;
    try {
        for (int pass = 0; pass < passes; ++pass) {
            std::vector<double> load(num_parts, 0.0);
            stream_nodes(indptr, indices, weight, order, num_nodes, capacity, load, parts);
        }
    } catch (const std::bad_alloc&) {
        return kNoMemory;
    }
    return kOk;
}

// `order` is a permutation of the edges; loads count edges in 64 bits. A part with `limit` edges takes no
// more.
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
