// Reading and writing values of every type as short vectors; the 16-bit types are computed on as float.
// Included by each_isa.h inside the namespace of one instruction set, so it has no include guard.
#include "vector_math.h"

// What sums over values of a type are kept in, and integers of that size.
template <class T>
struct Accumulator {
    using Type = float;
    using Int = int32_t;
};
template <>
struct Accumulator<double> {
    using Type = double;
    using Int = int64_t;
};
template <class T>
using Acc = typename Accumulator<T>::Type;
template <class T>
using AccInt = typename Accumulator<T>::Int;

template <class A, class B>
struct Same {
    static constexpr bool value = false;
};
template <class A>
struct Same<A, A> {
    static constexpr bool value = true;
};

template <class I>
struct Unsigned {
    using Type = uint32_t;
};
template <>
struct Unsigned<int64_t> {
    using Type = uint64_t;
};

template <class To, class From>
WEFT_INLINE To bits_as(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "bits of another size");
    To to;
    __builtin_memcpy(&to, &from, sizeof(To));
    return to;
}

template <int Lanes, class E>
WEFT_INLINE Vec<E, Lanes> splat(E value) {
    return value - Vec<E, Lanes>{};  // + 0 would have to be computed: it changes the sign of -0
}

// 16-bit values, widened to 32 bits, as float. A float16's exponent is rebased by a multiplication, which
// also gives subnormals; infinity and NaN get the largest exponent back.
template <int Lanes>
WEFT_INLINE Vec<float, Lanes> widen(const Vec<uint32_t, Lanes>& bits, BFloat16) {
    return bits_as<Vec<float, Lanes>>(bits << 16);
}
template <int Lanes>
WEFT_INLINE Vec<float, Lanes> widen(const Vec<uint32_t, Lanes>& bits, Float16) {
    typedef Vec<uint32_t, Lanes> Bits;
    const Bits magnitude = (bits & 0x7FFFu) << 13;
    const Bits special = bits_as<Bits>(magnitude >= 0x0F800000u) & 0x7F800000u;
    const Vec<float, Lanes> scaled = bits_as<Vec<float, Lanes>>(magnitude) * 0x1p112f;
    return bits_as<Vec<float, Lanes>>(bits_as<Bits>(scaled) | special | ((bits & 0x8000u) << 16));
}

// The other way: round to nearest, ties to even.
template <int Lanes>
WEFT_INLINE Vec<uint32_t, Lanes> narrow(const Vec<float, Lanes>& value, BFloat16) {
    typedef Vec<uint32_t, Lanes> Bits;
    const Bits bits = bits_as<Bits>(value);
    const Bits rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    return (bits & 0x7FFFFFFFu) > 0x7F800000u ? splat<Lanes>(0x7FC0u) : rounded;
}
template <int Lanes>
WEFT_INLINE Vec<uint32_t, Lanes> narrow(const Vec<float, Lanes>& value, Float16) {
    typedef Vec<uint32_t, Lanes> Bits;
    const Bits bits = bits_as<Bits>(value);
    const Bits magnitude = bits & 0x7FFFFFFFu;
    // subnormals: the addition shifts and rounds
    const Bits small = bits_as<Bits>(bits_as<Vec<float, Lanes>>(magnitude) + 0.5f) - 0x3F000000u;
    const Bits normal = (magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
    Bits half = magnitude < 0x38800000u ? small : normal;
    half = magnitude >= 0x47800000u ? splat<Lanes>(0x7C00u)
                                    : half;  // from 65536 on; 65520 has been rounded to it
    half = magnitude > 0x7F800000u ? splat<Lanes>(0x7E00u) : half;
    return half | ((bits >> 16) & 0x8000u);
}

// Lanes values of any type at `from`, in the accumulator's type.
template <int Lanes, class T>
WEFT_INLINE Vec<Acc<T>, Lanes> read(const T* from) {
    if constexpr (sizeof(T) == sizeof(Acc<T>)) {
        return load<Lanes>(from);
    } else {
#ifdef __AVX512F__
        // GCC converts in two halves, and has no float16 conversion of vectors
        if constexpr (Lanes == 16) {
            const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
            if constexpr (Same<T, Float16>::value)
                return bits_as<Vec<float, Lanes>>(_mm512_cvtph_ps(bits));
            else
                return bits_as<Vec<float, Lanes>>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
        }
#endif
        Vec<uint16_t, Lanes> bits;
        __builtin_memcpy(&bits, from, sizeof bits);
        return widen<Lanes>(__builtin_convertvector(bits, Vec<uint32_t, Lanes>), T{});
    }
}
template <class T>
WEFT_INLINE Acc<T> read_one(const T* from) {
    return read<1>(from)[0];
}

template <int Lanes, class T>
WEFT_INLINE void write(T* to, const Vec<Acc<T>, Lanes>& value) {
    if constexpr (sizeof(T) == sizeof(Acc<T>)) {
        store<Lanes>(to, value);
    } else {
        const Vec<uint16_t, Lanes> bits =
            __builtin_convertvector(narrow<Lanes>(value, T{}), Vec<uint16_t, Lanes>);
        __builtin_memcpy(to, &bits, sizeof bits);
    }
}
template <class T>
WEFT_INLINE void write_one(T* to, Acc<T> value) {
    write<1>(to, Vec<Acc<T>, 1>{value});
}

// Writes `count` sums in a 16-bit type.
template <class T>
WEFT_INLINE void narrow_all(const float* from, T* to, int64_t count) {
    constexpr int Lanes = kVectorBytes / 4;
    int64_t i = 0;
    for (; i + Lanes <= count; i += Lanes) write<Lanes>(to + i, load<Lanes>(from + i));
    for (; i < count; ++i) write_one(to + i, from[i]);
}

WEFT_INLINE void prefetch(const void* from, int64_t bytes) {
    const char* line = static_cast<const char*>(from);
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(line + at);
}

// Whether every index is in 0 … bound - 1. A pass over a block's indices before they are used costs next to
// nothing: they are in cache then.
template <class I>
bool in_range(const I* indices, int64_t count, int64_t bound) {
    typename Unsigned<I>::Type most = 0;
    for (int64_t i = 0; i < count; ++i) {
        const auto index = static_cast<typename Unsigned<I>::Type>(indices[i]);
        most = index > most ? index : most;
    }
    return count == 0 || static_cast<uint64_t>(most) < static_cast<uint64_t>(bound);
}
