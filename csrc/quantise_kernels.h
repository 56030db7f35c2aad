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

// Rounded up or down with the probability that makes the mean right; codes fit the `levels` by then.
template <class Code>
WEFT_INLINE void code_row(const float* __restrict row, Code* __restrict codes, int64_t width, uint64_t key,
                          float low, float inverse, int32_t levels) {
    for (int64_t lane = 0; lane < width; ++lane) {
        const uint32_t bits = draw(key, static_cast<uint32_t>(lane)) >> 8;
        const float turn = static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-24f;
        const int32_t code = static_cast<int32_t>((row[lane] - low) * inverse + turn);
        codes[lane] = static_cast<Code>(code < levels ? code : levels);
    }
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

template <int Shift, int32_t Mask, class T, class Code>
WEFT_INLINE void decode_some(const Code* __restrict codes, T* __restrict to, int64_t count, float low,
                             float scale) {
    for (int64_t i = 0; i < count; ++i) {
        const int32_t code = (static_cast<int32_t>(codes[i]) >> Shift) & Mask;
        const float value = low + scale * static_cast<float>(code);
        if constexpr (sizeof(T) >= 4)
            to[i] = static_cast<T>(value);
        else
            write_one(to + i, value);
    }
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
