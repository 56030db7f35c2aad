// Rows as codes of 2, 4, 8 or 16 bits for one instruction set (see each_isa.h).

// A row as floats: itself, or its values converted into `scratch`.
template <class T>
WEFT_INLINE const float* as_floats(const T* row, float* scratch, int64_t width) {
    if constexpr (Same<T, float>::value) {
        return row;
    } else {
        for (int64_t i = 0; i < width; ++i) scratch[i] = static_cast<float>(read_one(row + i));
        return scratch;
    }
}

// The least and the largest value of a row; both NaN where a value is not finite.
WEFT_INLINE void extent(const float* row, int64_t width, float& low, float& high) {
    constexpr int Lanes = kVectorBytes / 4;
    typedef Vec<float, Lanes> V;
    float bad = 0.0f;
    low = high = row[0];
    int64_t i = 0;
    if (width >= Lanes) {
        V lows = load<Lanes>(row), highs = lows, bads = V{};
        for (; i + Lanes <= width; i += Lanes) {
            const V value = load<Lanes>(row + i);
            lows = value < lows ? value : lows;
            highs = value > highs ? value : highs;
            bads += value - value;
        }
        for (int lane = 0; lane < Lanes; ++lane) {
            low = lows[lane] < low ? lows[lane] : low;
            high = highs[lane] > high ? highs[lane] : high;
            bad += bads[lane];
        }
    }
    for (; i < width; ++i) {
        low = row[i] < low ? row[i] : low;
        high = row[i] > high ? row[i] : high;
        bad += row[i] - row[i];
    }
    low += bad;
    high += bad;
}

template <int Lanes>
WEFT_INLINE Vec<uint32_t, Lanes> mix32_all(Vec<uint32_t, Lanes> value) {
    value = (value ^ (value >> 16)) * 0x21F0AAADu;
    value = (value ^ (value >> 15)) * 0x735A2D97u;
    return value ^ (value >> 15);
}

// Lanes values of a row; weyl is golden · (lane, lane + 1, …).
template <int Lanes, class Code>
WEFT_INLINE void code_some(const float* row, Code* codes, const Vec<uint32_t, Lanes>& weyl, uint64_t key,
                           float low, float inverse, int32_t levels) {
    typedef Vec<uint32_t, Lanes> Bits;
    typedef Vec<int32_t, Lanes> Ints;
    typedef Vec<float, Lanes> V;
    const Bits first = mix32_all<Lanes>(static_cast<uint32_t>(key) + weyl);
    const Bits drawn = mix32_all<Lanes>(first ^ static_cast<uint32_t>(key >> 32)) >> 8;
    const V turn = __builtin_convertvector(bits_as<Ints>(drawn), V) * 0x1p-24f;
    const V scaled = (load<Lanes>(row) - splat<Lanes>(low)) * splat<Lanes>(inverse) + turn;
    const Ints code = __builtin_convertvector(scaled, Ints), most = splat<Lanes>(levels);
    const Vec<Code, Lanes> fits = __builtin_convertvector(code < most ? code : most, Vec<Code, Lanes>);
    std::memcpy(codes, &fits, sizeof fits);
}

// Rounded up or down with the probability that makes the mean right.
template <class Code>
WEFT_INLINE void code_row(const float* row, Code* codes, int64_t width, uint64_t key, float low,
                          float inverse, int32_t levels) {
    constexpr int Lanes = kVectorBytes / 4;
    Vec<uint32_t, Lanes> weyl;
    for (int lane = 0; lane < Lanes; ++lane) weyl[lane] = kGolden32 * static_cast<uint32_t>(lane);
    int64_t lane = 0;
    for (; lane + Lanes <= width; lane += Lanes) {
        code_some<Lanes>(row + lane, codes + lane, weyl, key, low, inverse, levels);
        weyl += kGolden32 * static_cast<uint32_t>(Lanes);
    }
    for (; lane < width; ++lane)
        code_some<1>(row + lane, codes + lane, Vec<uint32_t, 1>{kGolden32 * static_cast<uint32_t>(lane)}, key,
                     low, inverse, levels);
}

// `planes` codes share a byte: those that stand `stride` apart.
template <int Bits>
WEFT_INLINE void pack(const uint8_t* __restrict codes, uint8_t* __restrict to, int64_t stride) {
    for (int64_t i = 0; i < stride; ++i) {
        uint8_t byte = codes[i];
        for (int plane = 1; plane < 8 / Bits; ++plane) byte |= codes[i + plane * stride] << (plane * Bits);
        to[i] = byte;
    }
}

template <class T>
void encode_rows(const T* x, const int64_t* rows, const int64_t* ids, int64_t width, int bits, uint64_t key,
                 uint8_t* out, int64_t size, float* scratch, uint16_t* codes, int64_t first, int64_t last) {
    const int64_t stride = size - 8;
    const int32_t levels = (1 << bits) - 1;
    for (int64_t i = first; i < last; ++i) {
        const float* row = as_floats(x + (rows ? rows[i] : i) * width, scratch, width);
        float low, high;
        extent(row, width, low, high);
        const float scale = (high - low) / static_cast<float>(levels);
        const float inverse = scale >= 0x1p-126f ? 1.0f / scale : 0.0f;
        uint8_t* to = out + i * size;
        std::memcpy(to, &low, 4);
        std::memcpy(to + 4, &scale, 4);
        const uint64_t row_bits = row_key(key, ids[i]);
        if (bits == 16) {
            code_row(row, codes, width, row_bits, low, inverse, levels);
            std::memcpy(to + 8, codes, stride);
        } else if (bits == 8) {
            code_row(row, to + 8, width, row_bits, low, inverse, levels);
        } else {
            uint8_t* const bytes = reinterpret_cast<uint8_t*>(codes);
            code_row(row, bytes, width, row_bits, low, inverse, levels);
            bits == 4 ? pack<4>(bytes, to + 8, stride) : pack<2>(bytes, to + 8, stride);
        }
    }
}

template <int Lanes, int Shift, int32_t Mask, class T, class Code>
WEFT_INLINE void decode_lanes(const Code* codes, T* to, float low, float scale) {
    typedef Vec<float, Lanes> V;
    Vec<Code, Lanes> raw;
    std::memcpy(&raw, codes, sizeof raw);
    const Vec<int32_t, Lanes> code = (__builtin_convertvector(raw, Vec<int32_t, Lanes>) >> Shift) & Mask;
    const V value = splat<Lanes>(low) + splat<Lanes>(scale) * __builtin_convertvector(code, V);
    if constexpr (sizeof(T) == 8) {
        for (int lane = 0; lane < Lanes; ++lane) to[lane] = static_cast<T>(value[lane]);
    } else {
        write<Lanes>(to, value);
    }
}

template <int Shift, int32_t Mask, class T, class Code>
WEFT_INLINE void decode_some(const Code* codes, T* to, int64_t count, float low, float scale) {
    constexpr int Lanes = kVectorBytes / 4;
    int64_t i = 0;
    for (; i + Lanes <= count; i += Lanes) decode_lanes<Lanes, Shift, Mask>(codes + i, to + i, low, scale);
    for (; i < count; ++i) decode_lanes<1, Shift, Mask>(codes + i, to + i, low, scale);
}

// The codes of one plane after the other; the last one may be shorter.
template <int Bits, int Plane = 0, class T>
WEFT_INLINE void decode_planes(const uint8_t* codes, T* to, int64_t stride, int64_t width, float low,
                               float scale) {
    constexpr int32_t kMask = (1 << Bits) - 1;
    decode_some<Plane * Bits, kMask>(codes, to, width < stride ? width : stride, low, scale);
    if constexpr ((Plane + 1) * Bits < 8)
        if (width > stride)
            decode_planes<Bits, Plane + 1>(codes, to + stride, stride, width - stride, low, scale);
}

// Row i of the message becomes row places[i] of `out`.
template <class T>
void decode_rows(const uint8_t* in, const int64_t* places, int64_t width, int bits, T* out, int64_t size,
                 uint16_t* codes, int64_t first, int64_t last) {
    const int64_t stride = size - 8;
    for (int64_t i = first; i < last; ++i) {
        const uint8_t* from = in + i * size;
        T* to = out + (places ? places[i] : i) * width;
        float low, scale;
        std::memcpy(&low, from, 4);
        std::memcpy(&scale, from + 4, 4);
        if (bits == 16) {
            std::memcpy(codes, from + 8, stride);
            decode_some<0, 0xFFFF>(codes, to, width, low, scale);
        } else if (bits == 8) {
            decode_planes<8>(from + 8, to, stride, width, low, scale);
        } else if (bits == 4) {
            decode_planes<4>(from + 8, to, stride, width, low, scale);
        } else {
            decode_planes<2>(from + 8, to, stride, width, low, scale);
        }
    }
}
