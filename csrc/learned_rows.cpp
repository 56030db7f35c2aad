// Steps on learned rows: each row once, by the sum of its gradients, wherever these stand.
#include <algorithm>
#include <cmath>

#include "core.h"

namespace weft {
namespace {

constexpr int64_t kRows = 16;
constexpr int64_t kLanes = 16;

// Where gradient `at` of all parts lies.
struct Parts {
    int64_t number;
    const int64_t* const* rows;
    const void* const* grads;
    const int64_t* counts;
};

struct Place {
    int64_t row;
    const void* grad;
};

template <class T>
std::vector<Place> by_row(const Parts& parts, int64_t width, int64_t num_rows, bool& inside) {
    std::vector<Place> found;
    for (int64_t part = 0; part < parts.number; ++part)
        for (int64_t i = 0; i < parts.counts[part]; ++i) {
            const int64_t row = parts.rows[part][i];
            inside = inside && row >= 0 && row < num_rows;
            found.push_back({row, static_cast<const T*>(parts.grads[part]) + i * width});
        }
    // Gradients of a row stay in the order in which they were given.
    std::stable_sort(found.begin(), found.end(),
                     [](const Place& a, const Place& b) { return a.row < b.row; });
    return found;
}

// Sums of sixteen lanes each, added up in order: the same on any processor.
template <class T>
T mean_square(const T* values, int64_t width) {
    T lanes[kLanes] = {};
    int64_t at = 0;
    for (; at + kLanes <= width; at += kLanes)
        for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[at + lane] * values[at + lane];
    for (int64_t lane = 0; at < width; ++at, ++lane) lanes[lane] += values[at] * values[at];
    T sum = 0;
    for (T lane : lanes) sum += lane;
    return width > 0 ? sum / static_cast<T>(width) : sum;
}

// Adagrad with one sum a row, on the rows of places first … last.
template <class T>
void adagrad_row(T* values, T* total, int64_t width, const Place* first, const Place* last, T lr, T eps,
                 std::vector<T>& room) {
    const T* grad = static_cast<const T*>(first->grad);
    if (last - first > 1) {
        std::copy(grad, grad + width, room.begin());
        for (const Place* place = first + 1; place < last; ++place) {
            const T* more = static_cast<const T*>(place->grad);
            for (int64_t i = 0; i < width; ++i) room[i] += more[i];
        }
        grad = room.data();
    }
    T& held = total[first->row];
    held += mean_square(grad, width);
    const T scale = -lr * (T(1) / (std::sqrt(held) + eps));
    T* row = values + first->row * width;
    for (int64_t i = 0; i < width; ++i) row[i] += grad[i] * scale;
}

template <class T>
Status adagrad(T* values, T* total, int64_t num_rows, int64_t width, const Parts& parts, T lr, T eps,
               int threads) {
    bool inside = true;
    const std::vector<Place> places = by_row<T>(parts, width, num_rows, inside);
    if (!inside) return kBadIndex;
    std::vector<int64_t> starts;
    const int64_t count = static_cast<int64_t>(places.size());
    for (int64_t i = 0; i < count; ++i)
        if (i == 0 || places[i].row != places[i - 1].row) starts.push_back(i);
    const int64_t distinct = static_cast<int64_t>(starts.size());
    starts.push_back(count);
    parallel_blocks(worth(threads, count * width), distinct, kRows, [&](int64_t begin, int64_t end) {
        std::vector<T> room(width);
        for (int64_t i = begin; i < end; ++i)
            adagrad_row(values, total, width, places.data() + starts[i], places.data() + starts[i + 1], lr,
                        eps, room);
    });
    return kOk;
}

}  // namespace
}  // namespace weft

// values: [num_rows, width], total: [num_rows]. Part p has counts[p] gradients grads[p], [counts[p], width],
// of rows[p]; those of a row are added up first, in the order of parts.
WEFT_API int weft_rowwise_adagrad(void* values, void* total, int64_t num_rows, int64_t width,
                                  int64_t num_parts, const int64_t* const* rows, const void* const* grads,
                                  const int64_t* counts, double lr, double eps, int dtype, int threads) {
    using namespace weft;
    const Parts parts{num_parts, rows, grads, counts};
    return guarded([&](Status& status) {
        if (dtype == kFloat32)
            status = adagrad(static_cast<float*>(values), static_cast<float*>(total), num_rows, width, parts,
                             static_cast<float>(lr), static_cast<float>(eps), threads);
        else if (dtype == kFloat64)
            status = adagrad(static_cast<double*>(values), static_cast<double*>(total), num_rows, width,
                             parts, lr, eps, threads);
    });
}
