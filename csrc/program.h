// A program over edges as the core takes it: see src/weft/compiler/native/backend.py,
// which makes it.
//
// Values of a tile of edges lie in an arena, [edges, heads, width] each, at
// places that are reused. A step reads and writes the arena. Steps on what is
// the same for all edges come first and run once.
#pragma once
#include <cstdint>

namespace weft {

enum ProgramOp : int64_t {
    kNeg,
    kAbs,
    kSign,
    kNot,
    kRelu,
    kReciprocal,
    kSqrt,
    kExp,
    kExpm1,
    kLog,
    kLog1p,
    kSigmoid,
    kTanh,
    kErf,
    kSin,
    kCos,
    kAdd,
    kSub,
    kMul,
    kDiv,
    kMaximum,
    kMinimum,
    kPow,
    kEq,
    kNe,
    kLt,
    kLe,
    kGt,
    kGe,
    kSame,
    kWhere,
    kConstant,
    kExpand,
    kSumWidth,
    kSumHeads,
    kDotWidth,
    kDot,
    kDotT,
    kLoadRow,
    kLoadOther,
    kLoadEdge,
    kLoadFlags,
    kLoadShared,
    kNumOps
};

constexpr const char* kOpNames[kNumOps] = {
    "neg", "abs",   "sign",    "not",     "relu",     "reciprocal", "sqrt",      "exp",       "expm1",
    "log", "log1p", "sigmoid", "tanh",    "erf",      "sin",        "cos",       "add",       "sub",
    "mul", "div",   "maximum", "minimum", "pow",      "eq",         "ne",        "lt",        "le",
    "gt",  "ge",    "same",    "where",   "constant", "expand",     "sum_width", "sum_heads", "dot_width",
    "dot", "dot_t", "row",     "other",   "edge",     "flags",      "shared"};

enum ProgramKind : int64_t {
    kSumRows,
    kSumWeighted,
    kSumMixed,
    kMaxRows,
    kMinRows,
    kSoftmaxRows,
    kEachEdge,
    kEachFlag,
    kSumShared,
    kSumWeight,
    kNumKinds
};

constexpr const char* kKindNames[kNumKinds] = {"sum",     "weighted", "mixed", "max",    "min",
                                               "softmax", "edge",     "flags", "shared", "weight"};

// Elementwise steps loop over sizes[0] · edges, sizes[1] and sizes[2], where
// each argument has a stride along each, the last 0 or 1; the value written is
// dense. Of other steps: sum_width [sizes[0] · edges, sizes[2]], sum_heads
// [edges · sizes[0], sizes[1], sizes[2]], dot_width of two arguments [edges,
// sizes[1], sizes[2]], dot and dot_t [edges · sizes[0], k =
// sizes[1]] times a matrix with n = sizes[2] columns, loads sizes[0] · edges
// values.
struct ProgramStep {
    int64_t op;
    int64_t out;
    int64_t args[3];
    int64_t sizes[3];
    int64_t strides[3][3];
    int64_t tensor;   // of a load or the weight of a product; of a constant its
                      // place among the numbers
    int64_t from[3];  // an argument read from its tensor, by the edge's list, or
                      // -1: from the arena
    int64_t lists[3];
    int64_t sparse;  // a product of values that may be mostly 0
    int64_t work;    // elementary operations for an edge
};

// args: places in the arena. heads, width: of a row result; of a softmax those
// of the score's heads; of a weight its rows and columns. A weighted sum has
// weights, a number a head, and values of `rows` heads, 1 or as many; a mixed one
// adds up the `rows` heads that it weighs. outputs: of the first
// tensor and the second, -1 for none.
struct ProgramResult {
    int64_t kind;
    int64_t args[2];
    int64_t heads, width;
    int64_t rows;  // of an edge, for a weight; heads of weighted values
    int64_t outputs[2];
    int64_t scratch;     // softmax: place of its scratch in the arena; sums over all
                         // edges: place in a slot
    int64_t from, list;  // as of a step, for the value that is reduced
    int64_t sparse;      // of a weight: the left side may be mostly 0
    int64_t work;
};

// Rows of a tensor that the edges of a tile read, by one of the lists: those of
// the next tile are asked for while this one is worked on.
struct ProgramGather {
    int64_t tensor, bytes, list;
};

struct ProgramCode {
    int64_t num_steps, num_once, num_results, num_gathers;
    int64_t tile;   // edges of a tile, a multiple of 16
    int64_t arena;  // values
    int64_t once;   // values at its beginning that are the same for all edges
    int64_t slot;   // values of the sums over all edges
    int64_t work;   // elementary operations for an edge
    const ProgramStep* steps;
    const ProgramResult* results;
    const ProgramGather* gathers;
};

struct ProgramCall {
    ProgramCode code;
    const double* numbers;
    const int64_t* indptr;
    const void* other;
    const void* places;  // of each edge in tensors of one row per edge, or null: its own
    void* const* tensors;
    void* const* outputs;
    void** packed;       // by step, the weight of a product in the order it is read
    const char* finite;  // by step, whether all of that weight is finite
    int64_t num_rows, num_other, num_edges;
    bool wide_other, wide_places;  // int64, not int32
};

// Some edges of a row in a tile: their sums go to row `dest` of the outputs, or
// to the part of a hub.
struct Segment {
    int64_t dest;
    int32_t begin, end;
    bool first, last;  // edges of the row
};

// Lists of a tile's edges: their row, the other end, the place in tensors of
// one row per edge.
enum ProgramList : int64_t { kRowList, kOtherList, kPlaceList, kNumLists };

// What one thread holds while it runs: the arena, the tile's edges, and where
// rows go.
struct ProgramState {
    void* arena;
    void* slot;
    int64_t *lists[kNumLists],
        *ahead[kNumLists];  // by edge of the tile; of the edges after it
    int64_t asking, asked;  // of the next tile: a gather, and how many of its rows
    double owed, ask_rate;  // rows to ask for, in all and for an operation
    Segment* segments;
    int64_t count, num_segments;
    void* const* dests;  // by output: the tensor, or parts of hubs
    bool parts;          // rows are parts of hubs: the sums of a softmax are left as they
                         // are
};

}  // namespace weft
