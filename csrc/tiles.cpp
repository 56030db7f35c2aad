// Whether the processor's matrix tiles (AMX) can be used: its flags may show them where a virtual machine
// forbids them, and then the first one ends the process by SIGILL. Called in a process of its own.
#include "core.h"

#if defined(__x86_64__) && defined(__linux__) && \
    ((defined(__clang__) && __clang_major__ >= 12) || (!defined(__clang__) && __GNUC__ >= 11))
#define WEFT_TILES
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#ifdef WEFT_TILES
namespace {

// The 64 bytes that LDTILECFG reads: tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64};
    uint8_t rows[16] = {16, 16, 16};
};

__attribute__((target("amx-tile,amx-bf16"))) void multiply() {
    const TileConfig config;
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_dpbf16ps(0, 1, 2);
    _tile_release();
}

}  // namespace
#endif

// Multiplies two bfloat16 tiles; kBadArgument where the kernel does not permit it or nobody knows how.
WEFT_API int weft_try_tiles() {
#ifdef WEFT_TILES
    constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM of the state XTILEDATA
    if (syscall(SYS_arch_prctl, kRequest, kTileData) != 0) return weft::kBadArgument;
    multiply();
    return weft::kOk;
#else
    return weft::kBadArgument;
#endif
}
