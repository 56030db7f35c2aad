// The C interface of the attention operators: divides the work and chooses the instruction set.
#include "attention.h"

#include <new>

namespace weft::attention {
namespace {

constexpr int64_t kHugePage = int64_t{1} << 21;
constexpr int64_t kTaskEdges = 2048;
constexpr int64_t kTaskRows = 512;
constexpr int64_t kGroups = 4096;  // at most: a group has its own partial gradient of `a`

bool make_plan(const int64_t* indptr, int64_t num_rows, int64_t num_edges, Plan& plan) {
    if (indptr[0] != 0 || indptr[num_rows] != num_edges) return false;
    Task open{0, 0, 0, 0, -1};
    auto close = [&](int64_t row) {
        open.row_end = row;
        open.edge_end = indptr[row];
        if (open.row_end > open.row_begin) plan.tasks.push_back(open);
        if (open.edge_end - open.edge_begin > plan.max_edges)
            plan.max_edges = open.edge_end - open.edge_begin;
    };
    for (int64_t row = 0; row < num_rows; row++) {
        const int64_t begin = indptr[row], end = indptr[row + 1];
        if (end < begin || end > num_edges) return false;
        const int64_t longest = end - begin < kHub ? end - begin : kHub;
        if (longest > plan.max_part) plan.max_part = longest;
        const bool hub = end - begin > kHub;
        if (hub || end - open.edge_begin > kTaskEdges || row - open.row_begin >= kTaskRows) {
            close(row);
            open = Task{row, row, begin, begin, -1};
        }
        if (!hub) continue;
        plan.hubs.push_back(Hub{row, plan.num_slots, (end - begin + kHub - 1) / kHub});
        for (int64_t at = begin; at < end; at += kHub)
            plan.tasks.push_back(Task{row, row + 1, at, at + kHub < end ? at + kHub : end, plan.num_slots++});
        plan.max_edges = kHub;
        open = Task{row + 1, row + 1, end, end, -1};
    }
    close(num_rows);
    const int64_t tasks = static_cast<int64_t>(plan.tasks.size());
    const int64_t stride = (tasks + kGroups - 1) / kGroups;
    for (int64_t task = 0; task < tasks; task += stride) plan.groups.push_back(task);
    plan.groups.push_back(tasks);
    return true;
}

PlanView view(const Plan& plan, int64_t num_rows) {
    return PlanView{plan.tasks.data(),
                    plan.hubs.data(),
                    plan.groups.data(),
                    static_cast<int64_t>(plan.tasks.size()),
                    static_cast<int64_t>(plan.hubs.size()),
                    static_cast<int64_t>(plan.groups.size()) - 1,
                    plan.num_slots,
                    plan.max_edges,
                    plan.max_part,
                    num_rows};
}

// The call with as many threads as are worth waking for it.
Call with_threads(Call call) {
    const int64_t width = call.heads * (call.value_dim + call.dim + 8);
    call.threads = worth(static_cast<int>(call.threads), (call.num_edges + call.num_dst) * width);
    return call;
}

int forward(const Call& given) {
    const Call call = with_threads(given);
    Plan plan;
    if (!make_plan(call.indptr, call.num_dst, call.num_edges, plan)) return kBadPointers;
    const PlanView rows = view(plan, call.num_dst);
    switch (level()) {
#if defined(__x86_64__)
        case 2:
            return avx512::forward(call, rows);
        case 1:
            return avx2::forward(call, rows);
#endif
        default:
            return portable::forward(call, rows);
    }
}

int backward(const Call& given) {
    const Call call = with_threads(given);
    Plan plan, t_plan;
    if (!make_plan(call.indptr, call.num_dst, call.num_edges, plan)) return kBadPointers;
    if (!make_plan(call.t_indptr, call.num_src, call.num_edges, t_plan)) return kBadPointers;
    const PlanView rows = view(plan, call.num_dst), columns = view(t_plan, call.num_src);
    switch (level()) {
#if defined(__x86_64__)
        case 2:
            return avx512::backward(call, rows, columns);
        case 1:
            return avx2::backward(call, rows, columns);
#endif
        default:
            return portable::backward(call, rows, columns);
    }
}

}  // namespace

void* room(int64_t bytes) {
    const bool large = bytes >= 8 * kHugePage;
    const int64_t align = large ? kHugePage : 64;
    void* made = std::aligned_alloc(align, (bytes + align - 1) / align * align);
    if (large && made) weft_advise(made, bytes);
    return made;
}

}  // namespace weft::attention

// The bytes of Call: Python mirrors it and compares.
WEFT_API int weft_attention_call_bytes() { return sizeof(weft::attention::Call); }

WEFT_API int weft_attention_forward(const weft::attention::Call* call) {
    try {
        return weft::attention::forward(*call);
    } catch (const std::bad_alloc&) {
        return weft::kNoMemory;
    }
}

WEFT_API int weft_attention_backward(const weft::attention::Call* call) {
    try {
        return weft::attention::backward(*call);
    } catch (const std::bad_alloc&) {
        return weft::kNoMemory;
    }
}
