// The attention kernels for one instruction set: WEFT_ISA names its namespace, WEFT_VECTOR_BYTES its vectors.
// Included by attention_portable.cpp, attention_avx2.cpp and attention_avx512.cpp; no include guard.
//
// alpha = exp(score - m) / s with m and s of the row; w = keep / (1 - p) * alpha; out[v] = sum of w *
// value[u]. With g the gradient of out and D[v, h] = <g[v, h], out[v, h]>, the gradient of a score is
//     de = w * <g[v], value[u]> - alpha * D[v].
// Where the edges are only some of those of a row, D is that of the whole row, and given.
// Additive scores never need it for each edge: with leaky' = slope + (1 - slope) [pre > 0],
//     d_src[u] = slope (<A, value[u]> - c) + (1 - slope) (<B, value[u]> - c'),    A = d_value[u] = sum of w
//     g[v],
// where B and c' are the sums A and c = sum of alpha D over the edges with pre > 0; and since the de of a row
// add up to zero, d_dst[v] = (1 - slope) (<g[v], P> - D q) with P and q the sums of w value[u] and alpha over
// such edges; forward makes them beside the output, so that backward looks at the edges once, by source.

// Vectors wider than the portable set are only passed between inlined functions.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace weft::attention::WEFT_ISA {
namespace {

#define WEFT_LAMBDA __attribute__((always_inline))

template <int N>
struct Constant {
    static constexpr int value = N;
    constexpr operator int64_t() const { return N; }
};

#include "vector_math.h"
//
#include "attention_rows.h"
//
#include "attention_edges.h"

// Uninitialised memory; no std::vector (see PlanView). Large tables are read at random: in huge pages.
template <class T>
class Buffer {
  public:
    explicit Buffer(int64_t count) : data_(static_cast<T*>(room((count + 1) * sizeof(T)))) {}
    ~Buffer() { std::free(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    T* get() const { return data_; }

  private:
    T* data_;
};

// The memory of one thread.
template <class T>
struct Scratch {
    int64_t group;
    int64_t *rows, *positions;
    uint64_t* keys;
    T* edge[6];  // values [part, H]
    T* tile[6];
    T* acc;
};

// The tables of a call with their type.
template <class T>
struct Tables {
    const T *src, *dst, *a, *value, *edge, *grad, *dot;
    T *out, *row_max, *row_sum, *d_src, *d_dst, *d_a, *d_value, *d_edge, *kept;
    T slope;
    int64_t heads, dim, value_dim, score_width, value_width;
    int64_t tile;   // edges in a tile
    T* stats;       // backward: [num_dst, (grad, dst,) m, 1 / s, D], H values each but for grad
    int64_t marks;  // of a row of stats without grad: the place of dst, or of m
    int64_t stats_width, kept_width;

    explicit Tables(const Call& c)
        : src(static_cast<const T*>(c.src)),
          dst(static_cast<const T*>(c.dst)),
          a(static_cast<const T*>(c.a)),
          value(static_cast<const T*>(c.value)),
          edge(static_cast<const T*>(c.edge)),
          grad(static_cast<const T*>(c.grad)),
          dot(static_cast<const T*>(c.dot)),
          out(static_cast<T*>(c.out)),
          row_max(static_cast<T*>(c.row_max)),
          row_sum(static_cast<T*>(c.row_sum)),
          d_src(static_cast<T*>(c.d_src)),
          d_dst(static_cast<T*>(c.d_dst)),
          d_a(static_cast<T*>(c.d_a)),
          d_value(static_cast<T*>(c.d_value)),
          d_edge(static_cast<T*>(c.d_edge)),
          kept(static_cast<T*>(c.kept)),
          slope(static_cast<T>(c.slope)),
          heads(c.heads),
          dim(c.dim),
          value_dim(c.value_dim),
          score_width(c.kind == kAdditive ? c.heads : c.heads * c.dim),
          value_width(c.heads * c.value_dim),
          tile(tile_edges(c.heads)),
          stats(nullptr),
          marks(c.kind == kAdditive ? value_width : 0),
          stats_width(c.kind == kAdditive ? rounded(value_width + 4 * c.heads) : 3 * c.heads),
          kept_width(2 * value_width + c.heads) {}
};

// The edges of one row (or a part of a hub) in one task.
struct Part {
    int64_t row, first, n;     // `first` is the position of the first edge in this order of the edges
    const int64_t* rows;       // at the other end
    const int64_t* positions;  // of the edges in forward order; null where that is first + i
    bool hub;
};

// n edges of a part from number `at` on.
WEFT_INLINE Part piece(const Part& part, int64_t at, int64_t n) {
    return Part{part.row, part.first + at, n, part.rows + at, part.positions ? part.positions + at : nullptr,
                part.hub};
}

template <class T>
WEFT_INLINE int64_t short_tile(const Tables<T>& t, int64_t n) {
    return n < t.tile ? n : t.tile;
}

constexpr int64_t kBatch = 512;  // edges handled at a time where sums need not wait for the whole part

template <class Index>
bool copy_indices(const void* from, int64_t first, int64_t n, int64_t bound, int64_t* to) {
    const Index* indices = static_cast<const Index*>(from) + first;
    bool good = true;
    for (int64_t i = 0; i < n; i++) {
        to[i] = indices[i];
        good &= static_cast<uint64_t>(to[i]) < static_cast<uint64_t>(bound);
    }
    for (int64_t i = n; i < n + kListEnd; i++) to[i] = n && good ? to[n - 1] : 0;
    return good;
}

// Runs a pass over the tasks of a plan. A pass has `width` accumulators a row; start(acc), part(part,
// scratch, acc), merge(acc, partial) and finish(row, scratch, acc). `only_hubs` leaves out the rows that are
// whole.
template <class T, class Pass>
int run(const Call& call, Pass& pass, const PlanView& plan, const void* indices, const void* edges,
        int64_t bound, bool only_hubs = false) {
    const Tables<T>& t = pass.t;
    const int64_t tile_width = t.tile * t.heads;
    const int64_t per_edge = rounded(plan.max_part * t.heads) + kRound;
    const int64_t values = 6 * per_edge + 6 * tile_width + pass.width + 64;
    const int64_t lists = plan.max_edges + kListEnd;
    const int threads = static_cast<int>(call.threads < plan.num_groups ? call.threads : plan.num_groups);
    if (threads == 0) return kOk;
    Buffer<T> numbers(threads * values), slots(plan.num_slots * pass.width);
    Buffer<int64_t> lists_buffer(threads * lists * 3);
    if (!numbers.get() || !slots.get() || !lists_buffer.get()) return kNoMemory;
    int bad = 0;
    auto scratch_of = [&](int64_t thread) {
        Scratch<T> s;
        s.rows = lists_buffer.get() + thread * lists * 3;
        s.positions = s.rows + lists;
        s.keys = reinterpret_cast<uint64_t*>(s.positions + lists);
        T* at = numbers.get() + thread * values;
        for (int i = 0; i < 6; i++, at += per_edge) s.edge[i] = at;
        for (int i = 0; i < 6; i++, at += tile_width) s.tile[i] = at;
        s.acc = at;
        return s;
    };
    auto do_task = [&](const Task& task, Scratch<T>& s) {
        const int64_t n = task.edge_end - task.edge_begin;
        const bool good =
            (call.wide_indices ? copy_indices<int64_t>(indices, task.edge_begin, n, bound, s.rows)
                               : copy_indices<int32_t>(indices, task.edge_begin, n, bound, s.rows)) &&
            (!edges || (call.wide_edges
                            ? copy_indices<int64_t>(edges, task.edge_begin, n, call.num_edges, s.positions)
                            : copy_indices<int32_t>(edges, task.edge_begin, n, call.num_edges, s.positions)));
        if (!good) {
            __atomic_store_n(&bad, 1, __ATOMIC_RELAXED);
            return;
        }
        const int64_t* indptr = pass.indptr;
        for (int64_t row = task.row_begin; row < task.row_end; row++) {
            const bool hub = task.slot >= 0;
            const int64_t begin = hub ? task.edge_begin : indptr[row],
                          end = hub ? task.edge_end : indptr[row + 1];
            const int64_t skip = begin - task.edge_begin;
            const Part part{row, begin, end - begin, s.rows + skip, edges ? s.positions + skip : nullptr,
                            hub};
            T* acc = hub ? slots.get() + task.slot * pass.width : s.acc;
            pass.start(acc);
            pass.part(part, s, acc);
            if (!hub) pass.finish(row, s, acc);
        }
    };
#pragma omp parallel num_threads(threads)
    {
#ifdef _OPENMP
        Scratch<T> s = scratch_of(omp_get_thread_num());
#else
        Scratch<T> s = scratch_of(0);
#endif
#pragma omp for schedule(dynamic, 1)
        for (int64_t group = 0; group < plan.num_groups; group++) {
            pass.group(group, s);
            for (int64_t task = plan.groups[group]; task < plan.groups[group + 1]; task++)
                if (!only_hubs || plan.tasks[task].slot >= 0) do_task(plan.tasks[task], s);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < plan.num_hubs; i++) {
            const Hub& hub = plan.hubs[i];
            T* acc = slots.get() + hub.first_slot * pass.width;
            if (__atomic_load_n(&bad, __ATOMIC_RELAXED)) continue;
            for (int64_t k = 1; k < hub.num_slots; k++) pass.merge(acc, acc + k * pass.width);
            pass.finish(hub.row, s, acc);
        }
    }
    return bad ? kBadIndex : kOk;
}

template <class T>
struct Pass {
    const Call& call;
    const Tables<T>& t;
    const int64_t* indptr;
    int64_t width;

    Pass(const Call& c, const Tables<T>& tables, const int64_t* pointers, int64_t accumulators)
        : call(c), t(tables), indptr(pointers), width(accumulators) {}
    void group(int64_t, Scratch<T>&) {}
    void start(T* acc) { fill(acc, width, T(0)); }
    void merge(T* acc, const T* partial) {
        for (int64_t i = 0; i < width; i++) acc[i] += partial[i];
    }
};

// Positions of the edges of a part in forward order, as a list.
template <class T>
WEFT_INLINE const int64_t* positions_of(const Part& part, Scratch<T>& s) {
    if (part.positions) return part.positions;
    for (int64_t i = 0; i < part.n + kListEnd; i++) s.positions[i] = part.first + i;
    return s.positions;
}

// leaky_relu(pre), minus infinity for a masked edge: with a slope of zero, 0 * -inf would make it NaN.
template <class T>
WEFT_INLINE Vec<T, widest<T>()> masked_leaky(const Vec<T, widest<T>()>& pre, T slope) {
    const Vec<T, widest<T>()> least = Vec<T, widest<T>()>{} - T(__builtin_inf());
    return (pre > T(0)) | (pre == least) ? pre : pre * slope;
}

// Scores of the edges into row v, [n, H], to s.edge[0]; `pre` is the argument of the leaky ReLU of additive
// scores.
template <class T>
void score_row(const Call& call, const Tables<T>& t, const Part& part, Scratch<T>& s, T* pre) {
    constexpr int W = widest<T>();
    const int64_t n = part.n, heads = t.heads, tile = short_tile(t, n);
    T* score = s.edge[0];
    if (call.kind == kAdditive) {
        gather_rows(t.src, heads, heads, part.rows, n, pre);
        if (t.edge) {
            const T* edge = t.edge + part.first * heads;
            T* dst = s.tile[0];
            spread(t.dst + part.row * heads, heads, tile, dst);
            for (int64_t at = 0; at < n * heads; at += tile * heads)
                for (int64_t i = 0; i < tile * heads && at + i < n * heads; i++)
                    pre[at + i] = (pre[at + i] + dst[i]) + edge[at + i];
        }
        fill_end(pre, n, heads, -T(__builtin_inf()));
        T* dst = s.tile[0];
        if (t.edge)
            fill(dst, rounded(tile * heads), T(0));
        else
            spread(t.dst + part.row * heads, heads, tile, dst);
        each_vector<T>(n, heads, tile, [&](int64_t at, int64_t i) WEFT_LAMBDA {
            const Vec<T, W> x = load<W>(pre + at) + load<W>(dst + i);
            store<W>(pre + at, x);
            store<W>(score + at, masked_leaky<T>(x, t.slope));
        });
        return;
    }
    const T* row = t.dst + part.row * t.score_width;
    if (call.kind == kGatv2) {
        const int64_t* positions = t.edge ? positions_of(part, s) : nullptr;
        rows_gatv2(t.src, row, t.a, t.edge, positions, t.slope, heads, t.dim, part.rows, n, score);
    } else {
        rows_dot(t.src, row, heads, t.dim, part.rows, n, score);
        const T* edge = t.edge ? t.edge + part.first * heads : nullptr;
        for (int64_t i = 0; i < n * heads; i++) score[i] = score[i] * t.slope + (edge ? edge[i] : T(0));
    }
    fill_end(score, n, heads, -T(__builtin_inf()));
}

// ---- forward: accumulators m [H], s [H], sum of w value [H, Dv]; with Keep also P [H, Dv] and q [H], and
// the sum, P and q of each row are kept for backward. (The output is not: its owner may change it in place.)
template <class T, bool Keep>
struct Forward : Pass<T> {
    using Pass<T>::t;
    using Pass<T>::call;

    Forward(const Call& c, const Tables<T>& tables)
        : Pass<T>(c, tables, c.indptr, 2 * tables.heads + (Keep ? tables.kept_width : tables.value_width)) {}

    void part(const Part& part, Scratch<T>& s, T* acc) {
        const int64_t n = part.n, heads = t.heads, tile = short_tile(t, n);
        if (n == 0) return;
        score_row(call, t, part, s, s.edge[1]);
        constexpr int W = widest<T>();
        T *score = s.edge[0], *positive = s.edge[1], *top = s.tile[0], *total = s.tile[1], *share = s.tile[2];
        fill(top, rounded(tile * heads), -T(__builtin_inf()));
        each_vector<T>(n, heads, tile, [&](int64_t at, int64_t i) WEFT_LAMBDA {
            const Vec<T, W> x = load<W>(score + at), before = load<W>(top + i);
            store<W>(top + i, Vec<T, W>(x > before ? x : before));
        });
        fill(acc, heads, -T(__builtin_inf()));
        tile_max(top, heads, tile, acc);
        for (int64_t h = 0; h < heads; h++) acc[h] = acc[h] == -T(__builtin_inf()) ? T(0) : acc[h];
        spread(acc, heads, tile, top);
        fill(total, rounded(tile * heads), T(0));
        if (Keep) fill(share, rounded(tile * heads), T(0));
        each_vector<T>(n, heads, tile, [&](int64_t at, int64_t i) WEFT_LAMBDA {
            const Vec<T, W> weight = exponentials<W>(Vec<T, W>(load<W>(score + at) - load<W>(top + i)));
            store<W>(score + at, weight);
            store<W>(total + i, Vec<T, W>(load<W>(total + i) + weight));
            if (!Keep) return;
            const Vec<T, W> zero = {}, plus = load<W>(positive + at) > T(0) ? weight : zero;
            store<W>(positive + at, plus);
            store<W>(share + i, Vec<T, W>(load<W>(share + i) + plus));
        });
        tile_sum(total, heads, tile, acc + heads);
        if (Keep) tile_sum(share, heads, tile, acc + 2 * heads + 2 * t.value_width);
        drop<T>(call, part.positions, part.first, n, s.keys, score, Keep ? positive : nullptr);
        T* sum = acc + 2 * heads;
        add_rows(t.value, t.value_width, heads, t.value_dim, part.rows, n, score, sum,
                 Keep ? positive : nullptr, sum + t.value_width);
    }

    void merge(T* acc, const T* partial) {
        const int64_t heads = t.heads, dim = t.value_dim;
        for (int64_t h = 0; h < heads; h++) {
            const T s = acc[heads + h], other = partial[heads + h];
            if (other == T(0)) continue;
            const T top = s == T(0) || partial[h] > acc[h] ? partial[h] : acc[h];
            const T scale = s == T(0) ? T(0) : exponential(acc[h] - top),
                    scale2 = exponential(partial[h] - top);
            auto add = [&](int64_t at, int64_t count) {
                for (int64_t i = at; i < at + count; i++) acc[i] = acc[i] * scale + partial[i] * scale2;
            };
            acc[h] = top;
            add(heads + h, 1);
            add(2 * heads + h * dim, dim);
            if (!Keep) continue;
            add(2 * heads + t.value_width + h * dim, dim);
            add(2 * heads + 2 * t.value_width + h, 1);
        }
    }

    void finish(int64_t row, Scratch<T>& s, const T* acc) {
        const int64_t heads = t.heads;
        T* inverse = s.tile[0];
        for (int64_t h = 0; h < heads; h++) {
            const T total = acc[heads + h];
            t.row_max[row * heads + h] = acc[h];
            t.row_sum[row * heads + h] = total;
            inverse[h] = total == T(0) ? T(0) : T(1) / total;
        }
        const T* sum = acc + 2 * heads;
        T* out = t.out + row * t.value_width;
        scale_heads(sum, inverse, heads, t.value_dim, out);
        if (!Keep) return;
        T* kept = t.kept + row * t.kept_width;
        std::memcpy(kept, out, t.value_width * sizeof(T));
        scale_heads(sum + t.value_width, inverse, heads, t.value_dim, kept + t.value_width);
        for (int64_t h = 0; h < heads; h++)
            kept[2 * t.value_width + h] = sum[2 * t.value_width + h] * inverse[h];
    }
};

template <class T>
WEFT_INLINE void row_stats(const Tables<T>& t, int64_t row, T* top, T* inverse) {
    for (int64_t h = 0; h < t.heads; h++) {
        const T s = t.row_sum[row * t.heads + h];
        top[h] = t.row_max[row * t.heads + h];
        inverse[h] = s == T(0) ? T(0) : T(1) / s;
    }
}

// Fills the row of stats of additive scores but for D, of which it returns the place. The gradient is copied
// beside the rest because backward by source reads all of it at random.
template <class T>
WEFT_INLINE T* additive_stats(const Tables<T>& t, int64_t row) {
    T *stats = t.stats + row * t.stats_width, *own = stats + t.marks;
    std::memcpy(stats, t.grad + row * t.value_width, t.value_width * sizeof(T));
    std::memcpy(own, t.dst + row * t.heads, t.heads * sizeof(T));
    row_stats(t, row, own + t.heads, own + 2 * t.heads);
    return own + 3 * t.heads;
}

// ---- backward by destination, additive scores: D and d_dst from what forward kept, without a look at the
// edges. Where it kept nothing only d_value is wanted, and D is not read.
template <class T>
void additive_row(const Tables<T>& t, int64_t row, T* p) {
    const int64_t heads = t.heads;
    T* d = additive_stats(t, row);
    if (!t.kept) return fill(d, heads, T(0));
    const T *grad = t.grad + row * t.value_width, *kept = t.kept + row * t.kept_width;
    head_dots(grad, kept, heads, t.value_dim, d);
    if (!t.d_dst) return;
    head_dots(grad, kept + t.value_width, heads, t.value_dim, p);
    const T* q = kept + 2 * t.value_width;
    for (int64_t h = 0; h < heads; h++) t.d_dst[row * heads + h] = (T(1) - t.slope) * (p[h] - d[h] * q[h]);
}

template <class T>
int additive_rows(const Call& call, const Tables<T>& t) {
    constexpr int64_t kBlock = 1024;
    const int64_t blocks = (call.num_dst + kBlock - 1) / kBlock;
    Buffer<T> room(blocks * t.heads);
    if (!room.get()) return kNoMemory;
#pragma omp parallel for schedule(dynamic, 1) num_threads(static_cast<int>(call.threads))
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t first = block * kBlock;
        const int64_t last = first + kBlock < call.num_dst ? first + kBlock : call.num_dst;
        for (int64_t row = first; row < last; row++) additive_row(t, row, room.get() + block * t.heads);
    }
    return kOk;
}

// ---- backward by source, additive scores: accumulators A [H, Dv], B [H, Dv], c [H], c' [H]; gives d_value
// and d_src
template <class T>
struct AdditiveColumns : Pass<T> {
    using Pass<T>::t;
    using Pass<T>::call;

    AdditiveColumns(const Call& c, const Tables<T>& tables)
        : Pass<T>(c, tables, c.t_indptr, 2 * tables.value_width + 2 * tables.heads) {}

    void part(const Part& part, Scratch<T>& s, T* acc) {
        for (int64_t at = 0; at < part.n; at += kBatch) {
            const int64_t n = part.n - at < kBatch ? part.n - at : kBatch;
            batch(piece(part, at, n), s, acc);
        }
    }

    void batch(const Part& part, Scratch<T>& s, T* acc) {
        constexpr int W = widest<T>();
        const int64_t n = part.n, heads = t.heads, tile = short_tile(t, n);
        T *weight = s.edge[0], *positive = s.edge[1], *inverse = s.edge[2], *d = s.edge[3], *edge = s.edge[4];
        T *src = s.tile[0], *c = s.tile[1], *c_positive = s.tile[2];
        gather_stats(part, n, weight, positive, inverse, d);
        if (t.edge) gather_rows(t.edge, heads, heads, part.positions, n, edge);
        fill_end(weight, n, heads, -T(__builtin_inf()));
        fill_end(positive, n, heads, T(0));
        fill_end(inverse, n, heads, T(0));
        fill_end(d, n, heads, T(0));
        fill_end(edge, n, heads, T(0));
        spread(t.src + part.row * heads, heads, tile, src);
        fill(c, rounded(tile * heads), T(0));
        fill(c_positive, rounded(tile * heads), T(0));
        each_vector<T>(n, heads, tile, [&](int64_t at, int64_t i) WEFT_LAMBDA {
            Vec<T, W> pre = load<W>(src + i) + load<W>(weight + at);
            if (t.edge) pre += load<W>(edge + at);
            const Vec<T, W> score = masked_leaky<T>(pre, t.slope);
            const Vec<T, W> power = exponentials<W>(Vec<T, W>(score - load<W>(positive + at)));
            const Vec<T, W> alpha = power * load<W>(inverse + at), zero = {};
            const Vec<T, W> plus = pre > T(0) ? alpha : zero;
            const Vec<T, W> own = load<W>(d + at);
            store<W>(c + i, Vec<T, W>(load<W>(c + i) + alpha * own));
            store<W>(c_positive + i, Vec<T, W>(load<W>(c_positive + i) + plus * own));
            store<W>(weight + at, alpha);
            store<W>(positive + at, plus);
        });
        tile_sum(c, heads, tile, acc + 2 * t.value_width);
        tile_sum(c_positive, heads, tile, acc + 2 * t.value_width + heads);
        drop(call, part.positions, 0, n, s.keys, weight, positive);
        add_rows(t.stats, t.stats_width, heads, t.value_dim, part.rows, n, weight, acc,
                 t.d_src ? positive : nullptr, acc + t.value_width);
    }

    void gather_stats(const Part& part, int64_t n, T* dst, T* top, T* inverse, T* d) {
        with_heads(t.heads, [&](auto heads) {
            for (int64_t i = 0; i < n; i++) {
                const T* row = t.stats + part.rows[i] * t.stats_width + t.marks;
                const T* next = t.stats + part.rows[i + kFarAhead] * t.stats_width + t.marks;
                __builtin_prefetch(next);
                __builtin_prefetch(next + 2 * heads);
                copy(dst + i * heads, row, heads);
                copy(top + i * heads, row + heads, heads);
                copy(inverse + i * heads, row + 2 * heads, heads);
                copy(d + i * heads, row + 3 * heads, heads);
            }
        });
    }

    void finish(int64_t row, Scratch<T>& s, const T* acc) {
        const int64_t heads = t.heads;
        if (t.d_value) std::memcpy(t.d_value + row * t.value_width, acc, t.value_width * sizeof(T));
        if (!t.d_src) return;
        const T* value = t.value + row * t.value_width;
        const T* c = acc + 2 * t.value_width;
        T *all = s.tile[0], *positive = s.tile[1];
        head_dots(value, acc, heads, t.value_dim, all);
        head_dots(value, acc + t.value_width, heads, t.value_dim, positive);
        for (int64_t h = 0; h < heads; h++)
            t.d_src[row * heads + h] =
                t.slope * (all[h] - c[h]) + (T(1) - t.slope) * (positive[h] - c[heads + h]);
    }
};

// ---- backward by destination with a gradient of each score: GATv2, dot, and additive with a gradient of the
// edge term. Accumulators: d_dst. D of a hub must be known before its parts are done, so hubs are visited
// twice unless it is given: first `OnlyD`.
template <class T, bool OnlyD>
struct ScoreRows : Pass<T> {
    using Pass<T>::t;
    using Pass<T>::call;
    T* group_a;  // [groups, H, D]: partial gradients of a

    ScoreRows(const Call& c, const Tables<T>& tables, T* partial_a)
        : Pass<T>(c, tables, c.indptr, OnlyD ? tables.heads : tables.score_width), group_a(partial_a) {}

    T* d_of(int64_t row) {
        return t.stats + row * t.stats_width + t.marks + (call.kind == kAdditive ? 3 : 2) * t.heads;
    }

    void group(int64_t group, Scratch<T>& s) {
        s.group = group;
        if (!OnlyD && group_a) fill(group_a + group * t.score_width, t.score_width, T(0));
    }

    void part(const Part& part, Scratch<T>& s, T* acc) {
        const int64_t n = part.n, heads = t.heads, tile = short_tile(t, n);
        if (n == 0) return;
        constexpr int W = widest<T>();
        T *alpha = s.edge[0], *pre = s.edge[1], *weight = s.edge[2], *de = s.edge[3];
        T *top = s.tile[0], *inverse = s.tile[1], *d = s.tile[2];
        score_row(call, t, part, s, pre);
        row_stats(t, part.row, top, inverse);
        spread(top, heads, tile, top);
        spread(inverse, heads, tile, inverse);
        each_vector<T>(n, heads, tile, [&](int64_t at, int64_t i) WEFT_LAMBDA {
            const Vec<T, W> power = exponentials<W>(Vec<T, W>(load<W>(alpha + at) - load<W>(top + i)));
            const Vec<T, W> own = power * load<W>(inverse + i);
            store<W>(alpha + at, own);
            store<W>(weight + at, own);
        });
        drop<T>(call, part.positions, part.first, n, s.keys, weight, nullptr);
        rows_dot(t.value, t.grad + part.row * t.value_width, heads, t.value_dim, part.rows, n, de);
        fill_end(weight, n, heads, T(0));
        fill_end(alpha, n, heads, T(0));
        fill_end(de, n, heads, T(0));
        T* own = d_of(part.row);
        if (OnlyD || (!part.hub && !t.dot)) {
            fill(d, rounded(tile * heads), T(0));
            each_vector<T>(n, heads, tile, [&](int64_t at, int64_t i) WEFT_LAMBDA {
                store<W>(d + i, Vec<T, W>(load<W>(d + i) + load<W>(weight + at) * load<W>(de + at)));
            });
            if (!OnlyD) fill(own, heads, T(0));
            tile_sum(d, heads, tile, OnlyD ? acc : own);
            if (OnlyD) return;
        }
        spread(t.dot ? t.dot + part.row * heads : own, heads, tile, d);
        each_vector<T>(n, heads, tile, [&](int64_t at, int64_t i) WEFT_LAMBDA {
            const Vec<T, W> all = load<W>(alpha + at) * load<W>(d + i);
            store<W>(de + at, Vec<T, W>(load<W>(weight + at) * load<W>(de + at) - all));
        });
        gradients(part, s, pre, de, acc);
    }

    void gradients(const Part& part, Scratch<T>& s, const T* pre, T* de, T* acc) {
        const int64_t n = part.n, heads = t.heads, tile = short_tile(t, n);
        T* d_edge = t.d_edge ? t.d_edge + part.first * heads : nullptr;
        if (call.kind == kGatv2) {
            const int64_t* positions = t.edge ? positions_of(part, s) : nullptr;
            add_gatv2(t.src, t.dst + part.row * t.score_width, t.a, t.edge, positions, t.slope, heads, t.dim,
                      part.rows, n, de, acc, group_a ? group_a + s.group * t.score_width : nullptr, t.d_edge);
            return;
        }
        if (call.kind == kDot) {
            if (d_edge) std::memcpy(d_edge, de, n * heads * sizeof(T));
            for (int64_t i = 0; i < n * heads; i++) de[i] *= t.slope;
            if (t.d_dst) add_rows(t.src, t.score_width, heads, t.dim, part.rows, n, de, acc);
            return;
        }
        constexpr int W = widest<T>();
        T* total = s.tile[0];
        fill(total, rounded(tile * heads), T(0));
        fill_end(de, n, heads, T(0));
        each_vector<T>(n, heads, tile, [&](int64_t at, int64_t i) WEFT_LAMBDA {
            const Vec<T, W> raw = load<W>(de + at);
            const Vec<T, W> own = load<W>(pre + at) > T(0) ? raw : raw * t.slope;
            store<W>(de + at, own);
            store<W>(total + i, Vec<T, W>(load<W>(total + i) + own));
        });
        if (d_edge) std::memcpy(d_edge, de, n * heads * sizeof(T));
        tile_sum(total, heads, tile, acc);
    }

    void finish(int64_t row, Scratch<T>&, const T* acc) {
        const int64_t heads = t.heads;
        T* m = t.stats + row * t.stats_width;
        if (OnlyD) {
            std::memcpy(d_of(row), acc, heads * sizeof(T));
            return;
        }
        if (call.kind == kAdditive)
            additive_stats(t, row);
        else
            row_stats(t, row, m, m + heads);
        if (t.dot)
            std::memcpy(d_of(row), t.dot + row * heads, heads * sizeof(T));
        else if (this->indptr[row] == this->indptr[row + 1])
            fill(d_of(row), heads, T(0));
        if (!t.d_dst) return;
        T* to = t.d_dst + row * t.score_width;
        for (int64_t i = 0; i < t.score_width; i++) to[i] = call.kind == kGatv2 ? acc[i] * t.a[i] : acc[i];
    }
};

// ---- backward by source, GATv2 and dot: accumulators d_value [H, Dv], d_src [H, D]
template <class T>
struct ScoreColumns : Pass<T> {
    using Pass<T>::t;
    using Pass<T>::call;

    ScoreColumns(const Call& c, const Tables<T>& tables)
        : Pass<T>(c, tables, c.t_indptr, tables.value_width + tables.score_width) {}

    void part(const Part& part, Scratch<T>& s, T* acc) {
        constexpr int64_t kRows = 64;  // rows read twice should still be in the cache
        for (int64_t at = 0; at < part.n; at += kRows) {
            const int64_t n = part.n - at < kRows ? part.n - at : kRows;
            batch(piece(part, at, n), s, acc);
        }
    }

    void batch(const Part& part, Scratch<T>& s, T* acc) {
        const int64_t n = part.n, heads = t.heads, count = n * heads;
        constexpr int W = widest<T>();
        T *alpha = s.edge[0], *top = s.edge[1], *inverse = s.edge[2], *d = s.edge[3], *weight = s.edge[4];
        T* de = s.edge[5];
        const T* own = t.src + part.row * t.score_width;
        gather_rows(t.stats, t.stats_width, heads, part.rows, n, top);
        gather_rows(t.stats + heads, t.stats_width, heads, part.rows, n, inverse);
        gather_rows(t.stats + 2 * heads, t.stats_width, heads, part.rows, n, d);
        if (call.kind == kGatv2) {
            rows_gatv2(t.dst, own, t.a, t.edge, part.positions, t.slope, heads, t.dim, part.rows, n, alpha);
        } else {
            rows_dot(t.dst, own, heads, t.dim, part.rows, n, alpha);
            if (t.edge) gather_rows(t.edge, heads, heads, part.positions, n, de);
            for (int64_t i = 0; i < count; i++) alpha[i] = alpha[i] * t.slope + (t.edge ? de[i] : T(0));
        }
        for (int64_t i = 0; i < count; i++)
            weight[i] = alpha[i] = exponential(alpha[i] - top[i]) * inverse[i];
        drop<T>(call, part.positions, 0, n, s.keys, weight, nullptr);
        if (t.d_value) add_rows(t.grad, t.value_width, heads, t.value_dim, part.rows, n, weight, acc);
        if (!t.d_src) return;
        rows_dot(t.grad, t.value + part.row * t.value_width, heads, t.value_dim, part.rows, n, de);
        for (int64_t i = 0; i < count; i += W) {
            const Vec<T, W> all = load<W>(alpha + i) * load<W>(d + i);
            store<W>(de + i, Vec<T, W>(load<W>(weight + i) * load<W>(de + i) - all));
        }
        T* to = acc + t.value_width;
        if (call.kind == kGatv2) {
            add_gatv2<T>(t.dst, own, t.a, t.edge, part.positions, t.slope, heads, t.dim, part.rows, n, de, to,
                         nullptr, nullptr);
        } else {
            for (int64_t i = 0; i < count; i++) de[i] *= t.slope;
            add_rows(t.dst, t.score_width, heads, t.dim, part.rows, n, de, to);
        }
    }

    void finish(int64_t row, Scratch<T>&, const T* acc) {
        if (t.d_value) std::memcpy(t.d_value + row * t.value_width, acc, t.value_width * sizeof(T));
        if (!t.d_src) return;
        T* to = t.d_src + row * t.score_width;
        acc += t.value_width;
        for (int64_t i = 0; i < t.score_width; i++) to[i] = call.kind == kGatv2 ? acc[i] * t.a[i] : acc[i];
    }
};

template <class T>
int backward_rows(const Call& call, const Tables<T>& t, const PlanView& rows) {
    const bool scores = t.d_src || t.d_dst || t.d_edge;
    if (call.kind == kAdditive && !t.d_edge && (t.kept || !scores)) return additive_rows(call, t);
    Buffer<T> group_a(t.d_a ? rows.num_groups * t.score_width : 0);
    if (!group_a.get()) return kNoMemory;
    if (rows.num_hubs && !t.dot) {
        ScoreRows<T, true> first(call, t, nullptr);
        if (int status = run<T>(call, first, rows, call.indices, nullptr, call.num_src, true)) return status;
    }
    ScoreRows<T, false> pass(call, t, t.d_a ? group_a.get() : nullptr);
    if (int status = run<T>(call, pass, rows, call.indices, nullptr, call.num_src)) return status;
    if (!t.d_a) return kOk;
    fill(t.d_a, t.score_width, T(0));
    for (int64_t group = 0; group < rows.num_groups; group++)
        for (int64_t i = 0; i < t.score_width; i++) t.d_a[i] += group_a.get()[group * t.score_width + i];
    return kOk;
}

template <class T>
int backward_of(const Call& call, const PlanView& rows, const PlanView& columns) {
    Tables<T> t(call);
    Buffer<T> stats(call.num_dst * t.stats_width);
    if (!stats.get()) return kNoMemory;
    t.stats = stats.get();
    if (int status = backward_rows(call, t, rows)) return status;
    if (!t.d_src && !t.d_value) return kOk;
    const void* edges = call.drop_below || call.edge ? call.t_edges : nullptr;
    if (call.kind == kAdditive) {
        AdditiveColumns<T> pass(call, t);
        return run<T>(call, pass, columns, call.t_indices, edges, call.num_dst);
    }
    ScoreColumns<T> pass(call, t);
    return run<T>(call, pass, columns, call.t_indices, edges, call.num_dst);
}

template <class T>
int forward_of(const Call& call, const PlanView& rows) {
    const Tables<T> t(call);
    if (t.kept) {
        Forward<T, true> pass(call, t);
        return run<T>(call, pass, rows, call.indices, nullptr, call.num_src);
    }
    Forward<T, false> pass(call, t);
    return run<T>(call, pass, rows, call.indices, nullptr, call.num_src);
}

}  // namespace

int forward(const Call& call, const PlanView& rows) {
    return call.is_double ? forward_of<double>(call, rows) : forward_of<float>(call, rows);
}

int backward(const Call& call, const PlanView& rows, const PlanView& columns) {
    return call.is_double ? backward_of<double>(call, rows, columns)
                          : backward_of<float>(call, rows, columns);
}

}  // namespace weft::attention::WEFT_ISA
