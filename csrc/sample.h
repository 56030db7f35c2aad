// What the C interface of the sampler takes and gives, and what its instruction-set forms share.
#pragma once
#include <cstdint>

namespace weft {

// The fields of samplers/core/native.py, in its order.
struct SampleRequest {
    const int64_t* indptr;
    const void* indices;       // source of each slot; a slot is an edge, in canonical order or by time
    const int32_t* edge_type;  // of each slot; null: rows are drawn from as a whole
    const int64_t* edge_map;   // edge of each slot; null: slots are edges
    const int64_t* edge_time;  // rank of the time of each slot, rising in a row (and relation); null: none
    const double* weight;      // of each slot; null: uniform
    const int64_t* seeds;
    const int64_t* seed_time;     // a seed sees slots whose time has a lower rank; null: rows are nodes
    const int64_t* seed_group;    // whose rows a seed shares, and which time it has; null: each its own
    const int64_t* seed_key;      // what the draws of a seed's rows are keyed by; null: the seed
    const int64_t* fanouts;       // [hops, relations]; negative: all
    const uint64_t* keys;         // [hops, relations]
    const int64_t* node_offsets;  // first node of each type, and the number of nodes
    const int64_t* hidden;        // slots that are as if they were not there, rising; null: none
    int64_t num_nodes, num_edges, num_seeds, num_hops, num_relations, num_types, num_hidden;
    int32_t index, replace, once, sorted, table;
    int32_t labor;  // draws are keyed by sources, and a row takes those below its chance
    int32_t top;    // of weighted draws: the heaviest are taken
};

struct SampleHop {
    int64_t num_dst, num_src, num_edges;
    int64_t* indptr;
    int32_t* indices;
    int64_t* edge_ids;
    double* scale;  // where rows differ in more than their degree: for each edge how many it stands for, or,
                    // of draws by weight, the key of the first that was not taken
};

struct SampleResult {
    SampleHop* hops;   // [num_hops], the caller's
    int64_t* nodes;    // [num_rows]
    int64_t* seed_of;  // [num_rows] place of the seed, or of the group, of each row, where rows are pairs
    int64_t num_rows;
    int64_t culprit;  // the seed that is wrong
};

// Edges to draw for one row, or for one relation of it: `wanted` of `degree` positions from slot `start` on.
struct DrawJob {
    int64_t start, degree, wanted;
    uint64_t key;  // the 64 bits of the row
};

}  // namespace weft
