// Softmax of rows where they lie, for one instruction set (see each_isa.h).

constexpr int kLanes = 16;

// The largest number of a row; NaN wins, so that it is seen in the result.
template <class T>
WEFT_INLINE T largest(const T* row, int64_t columns) {
    T most = -static_cast<T>(__builtin_inf());
    int64_t at = 0;
    if (columns >= kLanes) {
        typedef Vec<T, kLanes> V;
        V lanes = load<kLanes>(row);
        for (at = kLanes; at + kLanes <= columns; at += kLanes) {
            const V here = load<kLanes>(row + at);
            lanes = (here > lanes) | (here != here) ? here : lanes;
        }
        for (int lane = 0; lane < kLanes; ++lane)
            if (lanes[lane] > most || lanes[lane] != lanes[lane]) most = lanes[lane];
    }
    for (; at < columns; ++at)
        if (row[at] > most || row[at] != row[at]) most = row[at];
    return most;
}

// Exponentials of a row less `most`, in place; returns their sum, of sixteen lanes that are added in order.
template <class T>
WEFT_INLINE T exponentials_of(T* row, T most, int64_t columns) {
    Vec<T, kLanes> lanes = {};
    int64_t at = 0;
    for (; at + kLanes <= columns; at += kLanes) {
        const Vec<T, kLanes> here = exponentials<kLanes>(Vec<T, kLanes>(load<kLanes>(row + at) - most));
        store<kLanes>(row + at, here);
        lanes += here;
    }
    T sum = 0;
    for (int lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
    for (; at < columns; ++at) sum += row[at] = exponential(row[at] - most);
    return sum;
}

// Rows first … last of [n, columns]; most and sums [n] get what the logarithm of a row's sum is made of.
template <class T>
void row_softmax(T* rows, T* most, T* sums, int64_t columns, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
        T* row = rows + i * columns;
        most[i] = largest(row, columns);
        const bool none = most[i] == -static_cast<T>(__builtin_inf());
        sums[i] = none ? T(0) : exponentials_of(row, most[i], columns);
        const T scale = none ? T(0) : T(1) / sums[i];
        for (int64_t at = 0; at < columns; ++at) row[at] = none ? T(0) : row[at] * scale;
    }
}
