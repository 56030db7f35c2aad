// Sampled neighbourhoods: hop by hop, the incoming edges drawn for each row and their sources relabelled.
//
// One call samples all hops of a batch on the calling thread; threads prepare different batches. Everything
// that is not returned lives in a workspace of the thread. A hop is a pipeline: the edges of 16 rows are
// drawn and their columns prefetched, columns read some edges earlier have their table entries prefetched,
// and still earlier ones are relabelled, so that hardly any access to the graph or the table waits.
//
// The same in numpy, bit for bit: src/weft/samplers/core/reference.py.
#include "sample.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "memory.h"
#define WEFT_KERNELS "sample_kernels.h"
#include "each_isa.h"

namespace weft {
namespace {

constexpr int kDuplicate = 5;
constexpr int64_t kRows = 16;     // drawn at once
constexpr int64_t kBehind = 128;  // edges between the prefetch of an address and its use
constexpr int64_t kSlack = 64;
constexpr int64_t kDenseNodes = int64_t{1} << 24;  // beyond, a table of all nodes is far larger than caches
enum Table : int { kAuto = 0, kDense = 1, kHash = 2 };

struct Failed {
    int status;
};

template <class T>
T* allocate(int64_t count) {
    return static_cast<T*>(allocate_bytes(static_cast<size_t>(count) * sizeof(T)));
}

template <class T>
class Buffer {
  public:
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { release_bytes(data_); }

    // Makes room for `count`, keeping what is there; new room is zero where asked.
    T* reserve(int64_t count, bool zero = false) {
        if (count <= capacity_) return data_;
        const int64_t wanted = std::max(count, capacity_ + capacity_ / 2);
        T* const larger = allocate<T>(wanted);
        if (capacity_) std::memcpy(static_cast<void*>(larger), data_, capacity_ * sizeof(T));
        release_bytes(data_);
        data_ = larger;
        if (zero) std::memset(static_cast<void*>(data_ + capacity_), 0, (wanted - capacity_) * sizeof(T));
        capacity_ = wanted;
        return data_;
    }
    T* get() const { return data_; }
    int64_t capacity() const { return capacity_; }

  private:
    T* data_ = nullptr;
    int64_t capacity_ = 0;
};

struct Slot {
    int64_t id;
    uint32_t value;
    uint32_t unused;
};

struct Candidate {
    double key;
    int64_t slot;
    bool operator<(const Candidate& other) const {
        return key < other.key || (key == other.key && slot < other.slot);
    }
};

struct Workspace {
    // Entries of both tables are base + row; a lower one is of an earlier batch, so nothing is ever cleared.
    uint64_t next_base = 1;
    Buffer<uint32_t> dense;
    Buffer<Slot> slots;
    Buffer<int64_t> rows;  // id in the table of each row: its node, or seed · nodes + node
    Buffer<int64_t> wide;
    Buffer<DrawJob> jobs;
    Buffer<uint64_t> taken;
    std::vector<Candidate> candidates;
    std::vector<int64_t> moved;
};

thread_local Workspace workspace;

// The row of each node, by a table of all nodes.
class DenseTable {
  public:
    DenseTable(Workspace& space, const SampleRequest& request)
        : entries_(space.dense.reserve(request.num_nodes, true)),
          base_(static_cast<uint32_t>(space.next_base)) {}

    WEFT_INLINE void prefetch(int64_t id) const { __builtin_prefetch(entries_ + id, 1); }
    void room(const int64_t*, int64_t, int64_t) {}
    // The row of an id; a new one goes to the end of `rows`. Whether it is new is a coin's toss: by a mask,
    // as compilers make a branch of a choice.
    WEFT_INLINE int64_t place(int64_t id, int64_t* rows, int64_t& count) {
        const int64_t found = static_cast<int64_t>(entries_[id]) - static_cast<int64_t>(base_);
        const int64_t fresh = found >> 63;  // all bits, or none
        const int64_t row = found ^ ((found ^ count) & fresh);
        entries_[id] = base_ + static_cast<uint32_t>(row);
        rows[count] = id;
        count -= fresh;
        return row;
    }
    void move(int64_t id, int64_t row) { entries_[id] = base_ + static_cast<uint32_t>(row); }

  private:
    uint32_t* entries_;
    uint32_t base_;
};

// The same for graphs that are far larger than the caches, and for pairs: linear probing, half full at most.
class HashTable {
  public:
    HashTable(Workspace& space, const SampleRequest&)
        : space_(space), base_(static_cast<uint32_t>(space.next_base)) {
        space_.slots.reserve(1 << 12, true);
        resized();
    }

    WEFT_INLINE void prefetch(int64_t id) const { __builtin_prefetch(slots_ + home(id), 1); }
    // Makes room for `more` ids beside the `count` there are.
    void room(const int64_t* rows, int64_t count, int64_t more) {
        if (2 * (count + more) <= mask_ + 1) return;
        const int64_t before = space_.slots.capacity();
        std::memset(static_cast<void*>(space_.slots.get()), 0, before * sizeof(Slot));
        space_.slots.reserve(4 * (count + more), true);
        resized();
        for (int64_t row = 0; row < count; ++row) insert(rows[row], row);
    }
    WEFT_INLINE int64_t place(int64_t id, int64_t* rows, int64_t& count) {
        int64_t at = home(id);
        while (slots_[at].value >= base_ && slots_[at].id != id) at = (at + 1) & mask_;
        if (slots_[at].value < base_) {
            slots_[at] = {id, base_ + static_cast<uint32_t>(count), 0};
            rows[count++] = id;
        }
        return slots_[at].value - base_;
    }
    void move(int64_t id, int64_t row) {
        int64_t at = home(id);
        while (slots_[at].id != id || slots_[at].value < base_) at = (at + 1) & mask_;
        slots_[at].value = base_ + static_cast<uint32_t>(row);
    }

  private:
    WEFT_INLINE int64_t home(int64_t id) const {
        return static_cast<int64_t>((static_cast<uint64_t>(id) * kGolden64) >> shift_);
    }
    void resized() {
        slots_ = space_.slots.get();
        shift_ = 64;
        mask_ = 0;
        while (2 * (mask_ + 1) <= space_.slots.capacity()) {
            mask_ = 2 * mask_ + 1;
            --shift_;
        }
    }
    void insert(int64_t id, int64_t row) {
        int64_t at = home(id);
        while (slots_[at].value >= base_) at = (at + 1) & mask_;
        slots_[at] = {id, base_ + static_cast<uint32_t>(row), 0};
    }

    Workspace& space_;
    Slot* slots_ = nullptr;
    uint32_t base_;
    int64_t mask_ = 0;
    int shift_ = 64;
};

// The natural logarithm from exactly rounded operations alone, so that numpy gives the same bits.
double exact_log(double value) {
    int exponent;
    double m = 2.0 * std::frexp(value, &exponent);
    exponent -= 1;
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent += 1;
    }
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double sum = 1.0 / 21.0;
    for (int odd = 19; odd >= 1; odd -= 2) sum = sum * z + 1.0 / odd;
    return exponent * 0.6931471805599453 + 2.0 * s * sum;
}

// What competes in weighted draws: an exponential number of rate `weight`, drawn by the id of the edge.
double exponential(uint64_t key, int64_t edge, double weight) {
    const uint64_t row = row_key(key, edge);
    const uint64_t bits = (static_cast<uint64_t>(draw(row, 0)) << 32 | draw(row, 1)) >> 11;
    return -exact_log((static_cast<double>(bits) + 0.5) * 0x1p-53) / weight;
}

template <class I, class Table, bool Pairs>
class Sampler {
  public:
    Sampler(const SampleRequest& request, SampleResult& result)
        : request_(request), result_(result), space_(workspace), table_(space_, request) {}

    void run() {
        place_seeds();
        int64_t first = 0;  // of the rows that are drawn for
        for (int64_t hop = 0; hop < request_.num_hops; ++hop) {
            const int64_t last = count_;
            sample_hop(hop, first, last, result_.hops[hop]);
            if (request_.once) first = last;
        }
        hand_over();
    }

  private:
    void place_seeds() {
        rows_ = space_.rows.reserve(request_.num_seeds + kSlack);
        claim(request_.num_seeds);
        table_.room(rows_, 0, request_.num_seeds);
        for (int64_t i = 0; i < request_.num_seeds; ++i) {
            result_.culprit = request_.seeds[i];
            if (static_cast<uint64_t>(request_.seeds[i]) >= static_cast<uint64_t>(request_.num_nodes))
                throw Failed{kBadIndex};
            const int64_t group = Pairs && request_.seed_group ? request_.seed_group[i] : i;
            const int64_t id = Pairs ? group * request_.num_nodes + request_.seeds[i] : request_.seeds[i];
            if (table_.place(id, rows_, count_) != i) throw Failed{kDuplicate};
        }
    }

    // Takes the numbers base … base + count + more - 1 for entries of this batch, whatever becomes of it.
    void claim(int64_t more) {
        if (count_ + more >= int64_t{1} << 31) throw Failed{kBadArgument};
        space_.next_base = base_ + static_cast<uint64_t>(count_ + more);
    }

    void sample_hop(int64_t hop, int64_t first, int64_t last, SampleHop& out) {
        out.num_dst = last - first;
        out.indptr = allocate<int64_t>(out.num_dst + 1);
        make_jobs(hop, first, last, out.indptr);
        out.num_edges = out.indptr[out.num_dst];
        out.edge_ids = allocate<int64_t>(out.num_edges + kSlack);
        out.indices = allocate<int32_t>(out.num_edges + kSlack);
        if (request_.weight || request_.edge_type || request_.labor || Pairs)
            out.scale = allocate<double>(out.num_edges + kSlack);
        claim(out.num_edges);
        rows_ = space_.rows.reserve(count_ + out.num_edges + kSlack);
        pipeline(first, out);
        if (request_.num_types > 1) sort_by_type(last, out);
        if (request_.edge_map)
            for (int64_t e = 0; e < out.num_edges; ++e) out.edge_ids[e] = request_.edge_map[out.edge_ids[e]];
        out.num_src = count_;
    }

    // Lists what is to be drawn for each row, and counts it into the row pointers of the block.
    void make_jobs(int64_t hop, int64_t first, int64_t last, int64_t* indptr) {
        const int64_t relations = request_.num_relations;
        const int64_t* fanouts = request_.fanouts + hop * relations;
        const uint64_t* keys = request_.keys + hop * relations;
        space_.jobs.reserve(last - first + kSlack);
        num_jobs_ = 0;
        num_drawn_ = 0;
        indptr[0] = 0;
        for (int64_t row = first; row < last; ++row) {
            if (row + kRows < last) __builtin_prefetch(request_.indptr + node_of(rows_[row + kRows]));
            const int64_t node = node_of(rows_[row]);
            const int64_t start = request_.indptr[node], end = request_.indptr[node + 1];
            if (start < 0 || end < start || end > request_.num_edges) throw Failed{kBadPointers};
            if (!request_.edge_type) {
                add_job(rows_[row], node, start, end, keys[0], fanouts[0]);
            } else {
                for (int64_t at = start; at < end;) {
                    const int32_t kind = request_.edge_type[at];
                    if (static_cast<uint32_t>(kind) >= relations) throw Failed{kBadIndex};
                    const int64_t stop =
                        std::upper_bound(request_.edge_type + at, request_.edge_type + end, kind) -
                        request_.edge_type;
                    add_job(rows_[row], node, at, stop, keys[kind], fanouts[kind]);
                    at = stop;
                }
            }
            indptr[row - first + 1] = num_drawn_;
        }
    }

    WEFT_INLINE void add_job(int64_t id, int64_t node, int64_t start, int64_t end, uint64_t key,
                             int64_t fanout) {
        int64_t degree = end - start;
        if (Pairs) {
            const int64_t seed = id / request_.num_nodes;
            const int64_t* time = request_.edge_time;
            degree = std::lower_bound(time + start, time + end, request_.seed_time[seed]) - (time + start);
            key = row_key(key, (request_.seed_key ? request_.seed_key : request_.seeds)[seed]);
        }
        // Weighted draws look at each slot, and so at whether it is hidden.
        if (request_.hidden && !request_.weight)
            degree -= hidden_before(start + degree) - hidden_before(start);
        const int64_t wanted = fanout < 0 && !request_.replace ? degree : fanout;
        // Weighted draws are keyed by edges, so that the bottom k of parts merge into that of the whole.
        if (!request_.weight && !request_.labor) key = row_key(key, node);
        DrawJob* jobs = space_.jobs.get();
        if (num_jobs_ + kSlack > space_.jobs.capacity()) jobs = space_.jobs.reserve(num_jobs_ + 2 * kSlack);
        jobs[num_jobs_++] = {start, degree, wanted, key};
        if (request_.weight) {
            num_drawn_ += std::min(wanted, positive(start, degree));
        } else if (request_.labor) {
            num_drawn_ += below_chance(jobs[num_jobs_ - 1]);
        } else {
            num_drawn_ += drawn_of(jobs[num_jobs_ - 1]);
            if (degree > largest_) grow_taken(degree);
        }
    }

    __attribute__((noinline)) void grow_taken(int64_t degree) {
        if (degree >= int64_t{1} << 32) throw Failed{kBadArgument};  // a draw has 32 bits
        space_.taken.reserve(degree / 64 + 1, true);
        largest_ = 64 * space_.taken.capacity() - 1;
    }

    int64_t positive(int64_t start, int64_t degree) const {
        int64_t count = 0;
        for (int64_t slot = start; slot < start + degree; ++slot)
            count += request_.weight[slot] > 0 && !is_hidden(slot);
        return count;
    }

    int64_t hidden_before(int64_t slot) const {
        return std::lower_bound(request_.hidden, request_.hidden + request_.num_hidden, slot) -
               request_.hidden;
    }

    bool is_hidden(int64_t slot) const {
        if (!request_.hidden) return false;
        const int64_t place = hidden_before(slot);
        return place < request_.num_hidden && request_.hidden[place] == slot;
    }

    // Positions were drawn among the slots of a row that are not hidden: turns each into its slot. The j-th
    // hidden slot comes before a position where no more than hidden[j] - j others do.
    void skip_hidden(const DrawJob* jobs, int64_t count, int64_t* at) const {
        for (int64_t job = 0; job < count; ++job) {
            const int64_t drawn = drawn_of(jobs[job]), before = hidden_before(jobs[job].start);
            for (int64_t* const stop = at + drawn; at < stop; ++at) {
                int64_t low = before, high = request_.num_hidden;
                while (low < high) {
                    const int64_t middle = low + (high - low) / 2;
                    if (request_.hidden[middle] - middle <= *at - before)
                        low = middle + 1;
                    else
                        high = middle;
                }
                *at += low - before;
            }
        }
    }

    // The chance of each edge of a row: all of them together have the variance of `wanted` uniform draws.
    static double chance_of(const DrawJob& job) {
        if (job.degree <= job.wanted) return 1.0;
        const double degree = static_cast<double>(job.degree);
        return job.wanted ? degree / (degree * degree / static_cast<double>(job.wanted)) : 0.0;
    }

    int64_t source_of(int64_t slot) const {
        return static_cast<int64_t>(static_cast<const I*>(request_.indices)[slot]);
    }

    // Calls take(slot) for the edges of a row whose number lies below their chance; where there are none, for
    // the one that is nearest. Copies of an edge, which lie side by side, have a number each.
    template <class Take>
    void each_below_chance(const DrawJob& job, double chance, Take take) const {
        if (chance <= 0.0 || job.degree == 0) return;
        double nearest = std::numeric_limits<double>::infinity();
        int64_t best = job.start;
        uint32_t copy = 0;
        bool any = false;
        for (int64_t slot = job.start; slot < job.start + job.degree; ++slot) {
            const int64_t source = source_of(slot);
            copy = slot > job.start && source == source_of(slot - 1) ? copy + 1 : 0;
            const double number = static_cast<double>(draw(row_key(job.key, source), copy)) * 0x1p-32;
            if (number < chance) {
                any = true;
                take(slot);
            } else if (!any && number / chance < nearest) {
                nearest = number / chance;
                best = slot;
            }
        }
        if (!any) take(best);
    }

    int64_t below_chance(const DrawJob& job) const {
        const double chance = chance_of(job);
        if (chance >= 1.0) return job.degree;
        int64_t count = 0;
        each_below_chance(job, chance, [&](int64_t) { ++count; });
        return count;
    }

    int64_t* draw_labor(const DrawJob& job, int64_t* end, double* scale) const {
        const double chance = chance_of(job);
        int64_t taken = 0;
        double total = 0.0;
        each_below_chance(job, chance, [&](int64_t slot) {
            end[taken++] = slot;
            total += 1.0 / chance;
        });
        std::fill(scale, scale + taken, static_cast<double>(job.degree) / (chance * total));
        return end + taken;
    }

    int64_t node_of(int64_t id) const { return Pairs ? id % request_.num_nodes : id; }

    void pipeline(int64_t first, SampleHop& out) {
        const bool narrow = sizeof(I) == 4 && !Pairs;
        if (!narrow) space_.wide.reserve(out.num_edges + kSlack);
        if (narrow)
            draw_and_place(first, out, reinterpret_cast<uint32_t*>(out.indices));
        else
            draw_and_place(first, out, reinterpret_cast<uint64_t*>(space_.wide.get()));
    }

    // `ids` holds the ids of sources between being read and being relabelled.
    template <class Id>
    void draw_and_place(int64_t first, SampleHop& out, Id* ids) {
        int64_t* end = out.edge_ids;
        int64_t read = 0, placed = 0, row = 0;
        for (int64_t job = 0; job < num_jobs_; job += kRows) {
            end = draw_some(job, std::min(job + kRows, num_jobs_), out, end);
            const int64_t drawn = end - out.edge_ids;
            if (drawn - kBehind > read) read = read_columns(first, out, ids, read, drawn - kBehind, row);
            if (read - kBehind > placed) placed = place_sources(out, ids, placed, read - kBehind);
        }
        read = read_columns(first, out, ids, read, out.num_edges, row);
        place_sources(out, ids, placed, out.num_edges);
    }

    int64_t* draw_some(int64_t job, int64_t last, SampleHop& out, int64_t* end) {
        const DrawJob* jobs = space_.jobs.get();
        const char* columns = static_cast<const char*>(request_.indices);
        double* scale = out.scale ? out.scale + (end - out.edge_ids) : nullptr;
        if (request_.weight) {
            for (; job < last; ++job) end = draw_weighted(jobs[job], end, out.scale + (end - out.edge_ids));
            return end;
        }
        if (request_.labor) {
            for (; job < last; ++job) end = draw_labor(jobs[job], end, out.scale + (end - out.edge_ids));
            return end;
        }
        int64_t* const from = end;
        if (request_.replace)
            end = WEFT_CALL(draw_jobs_again, jobs + job, last - job, columns, sizeof(I), end);
        else
            end = WEFT_CALL(draw_jobs, jobs + job, last - job, space_.taken.get(), columns, sizeof(I), end);
        if (request_.sorted) sort_draws(jobs + job, last - job, from);
        if (request_.hidden) skip_hidden(jobs + job, last - job, from);
        if (scale) fill_scale(jobs + job, last - job, scale);
        return end;
    }

    int64_t drawn_of(const DrawJob& job) const {
        if (!request_.replace) return std::min(job.wanted, job.degree);
        return job.wanted < 0 ? job.degree : job.degree ? job.wanted : 0;
    }

    void sort_draws(const DrawJob* jobs, int64_t count, int64_t* at) const {
        for (int64_t job = 0; job < count; ++job) {
            const int64_t drawn = drawn_of(jobs[job]);
            std::sort(at, at + drawn);
            at += drawn;
        }
    }

    void fill_scale(const DrawJob* jobs, int64_t count, double* at) const {
        for (int64_t job = 0; job < count; ++job) {
            const int64_t drawn = drawn_of(jobs[job]);
            std::fill(at, at + drawn, static_cast<double>(jobs[job].degree) / static_cast<double>(drawn));
            at += drawn;
        }
    }

    // The `wanted` slots of lowest key: drawn by weight, or the heaviest, which stand for equally many.
    int64_t* draw_weighted(const DrawJob& job, int64_t* end, double* scale) {
        std::vector<Candidate>& all = space_.candidates;
        all.clear();
        int64_t shown = 0;
        for (int64_t slot = job.start; slot < job.start + job.degree; ++slot) {
            if (is_hidden(slot)) continue;
            ++shown;
            const double weight = request_.weight[slot];
            const int64_t edge = request_.edge_map ? request_.edge_map[slot] : slot;
            if (weight > 0)
                all.push_back({request_.top ? -weight : exponential(job.key, edge, weight), slot});
        }
        int64_t taken = static_cast<int64_t>(all.size());
        double first_left = std::numeric_limits<double>::infinity();
        if (taken > job.wanted) {
            taken = job.wanted;
            std::nth_element(all.begin(), all.begin() + taken, all.end());
            first_left = all[taken].key;
        }
        for (int64_t i = 0; i < taken; ++i) end[i] = all[i].slot;
        std::sort(end, end + taken);
        const double each = static_cast<double>(shown) / static_cast<double>(taken);
        std::fill(scale, scale + taken, request_.top ? each : first_left);
        return end + taken;
    }

    template <class Id>
    int64_t read_columns(int64_t first, const SampleHop& out, Id* ids, int64_t from, int64_t to,
                         int64_t& row) {
        const I* columns = static_cast<const I*>(request_.indices);
        const uint64_t num_nodes = static_cast<uint64_t>(request_.num_nodes);
        const int64_t* edges = out.edge_ids;
        const Table table = table_;  // a copy, which stores to arrays cannot change
        bool bad = false;
        for (int64_t e = from; e < to; ++e) {
            uint64_t id = static_cast<uint64_t>(columns[edges[e]]);
            bad |= id >= num_nodes;
            if (Pairs) {
                while (e >= out.indptr[row + 1]) ++row;
                id += static_cast<uint64_t>(rows_[first + row] / request_.num_nodes) * num_nodes;
            }
            ids[e] = static_cast<Id>(id);
            table.prefetch(static_cast<int64_t>(id));
        }
        if (bad) throw Failed{kBadIndex};
        return to;
    }

    template <class Id>
    int64_t place_sources(SampleHop& out, const Id* ids, int64_t from, int64_t to) {
        for (int64_t begin = from; begin < to; begin += kBehind) {
            const int64_t end = std::min(begin + kBehind, to);
            table_.room(rows_, count_, end - begin);
            Table table = table_;
            int64_t* const rows = rows_;
            int32_t* const local = out.indices;
            int64_t count = count_;
            for (int64_t e = begin; e < end; ++e)
                local[e] = static_cast<int32_t>(table.place(static_cast<int64_t>(ids[e]), rows, count));
            count_ = count;
        }
        return to;
    }

    // Puts the rows found in this hop into the order of their types; within a type they stay in theirs.
    void sort_by_type(int64_t first, SampleHop& out) {
        const auto type_of = [&](int64_t row) {
            const int64_t* offsets = request_.node_offsets;
            const int64_t* after =
                std::upper_bound(offsets, offsets + request_.num_types, node_of(rows_[row]));
            return after - offsets - 1;
        };
        std::vector<int64_t> next(request_.num_types + 1, 0), &moved = space_.moved;
        for (int64_t row = first; row < count_; ++row) ++next[type_of(row) + 1];
        for (int64_t type = 0; type < request_.num_types; ++type) next[type + 1] += next[type];
        moved.resize(2 * (count_ - first));
        int64_t* ids = moved.data() + (count_ - first);
        for (int64_t row = first; row < count_; ++row) {
            const int64_t to = next[type_of(row)]++;
            moved[row - first] = first + to;
            ids[to] = rows_[row];
        }
        std::copy(ids, ids + (count_ - first), rows_ + first);
        for (int64_t row = first; row < count_; ++row) table_.move(rows_[row], row);
        for (int64_t e = 0; e < out.num_edges; ++e)
            if (out.indices[e] >= first) out.indices[e] = static_cast<int32_t>(moved[out.indices[e] - first]);
    }

    void hand_over() {
        result_.num_rows = count_;
        result_.nodes = allocate<int64_t>(count_ + 1);
        if (Pairs) result_.seed_of = allocate<int64_t>(count_ + 1);
        for (int64_t row = 0; row < count_; ++row) {
            result_.nodes[row] = node_of(rows_[row]);
            if (Pairs) result_.seed_of[row] = rows_[row] / request_.num_nodes;
        }
    }

    const SampleRequest& request_;
    SampleResult& result_;
    Workspace& space_;
    const uint64_t base_ = space_.next_base;
    Table table_;
    int64_t* rows_ = nullptr;
    int64_t count_ = 0;
    int64_t num_jobs_ = 0, num_drawn_ = 0;
    int64_t largest_ = 64 * space_.taken.capacity() - 1;
};

template <class I>
void sample(const SampleRequest& request, SampleResult& result) {
    if (request.seed_time)
        Sampler<I, HashTable, true>(request, result).run();
    else if (request.table == kDense || (request.table == kAuto && request.num_nodes <= kDenseNodes))
        Sampler<I, DenseTable, false>(request, result).run();
    else
        Sampler<I, HashTable, false>(request, result).run();
}

// Before the numbers of the table entries run out, all are forgotten.
void renew(Workspace& space) {
    if (space.next_base < uint64_t{1} << 31) return;
    std::memset(static_cast<void*>(space.dense.get()), 0, space.dense.capacity() * sizeof(uint32_t));
    std::memset(static_cast<void*>(space.slots.get()), 0, space.slots.capacity() * sizeof(Slot));
    space.next_base = 1;
}

void release(SampleResult& result, int64_t num_hops) {
    for (int64_t hop = 0; hop < num_hops; ++hop) {
        SampleHop& one = result.hops[hop];
        release_bytes(one.indptr);
        release_bytes(one.indices);
        release_bytes(one.edge_ids);
        release_bytes(one.scale);
        one = SampleHop{};
    }
    release_bytes(result.nodes);
    release_bytes(result.seed_of);
    result.nodes = result.seed_of = nullptr;
}

}  // namespace
}  // namespace weft

// Arrays of the result are the caller's, who hands each over by weft_share; after an error there are none.
WEFT_API int weft_sample(const weft::SampleRequest* request, weft::SampleResult* result) {
    using namespace weft;
    int failed = kOk;
    const int status = guarded([&](Status& status) {
        renew(workspace);
        try {
            if (request->index == kInt32)
                sample<int32_t>(*request, *result);
            else
                sample<int64_t>(*request, *result);
        } catch (const Failed& failure) {
            failed = failure.status;
        } catch (...) {
            release(*result, request->num_hops);
            throw;
        }
        status = kOk;
    });
    if (failed != kOk) release(*result, request->num_hops);
    return failed != kOk ? failed : status;
}

// Limits the threads that the calling thread uses, here and in torch, which shares the runtime.
WEFT_API int weft_thread_limit(int threads) {
#ifdef _OPENMP
    omp_set_num_threads(threads);
#endif
    (void)threads;
    return weft::kOk;
}
