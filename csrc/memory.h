// Memory that the core hands out.
#pragma once
#include "core.h"

namespace weft {

// Uninitialised memory, a large piece aligned to a cache line; throws std::bad_alloc. For `release_bytes`, or
// weft_share.
void* allocate_bytes(size_t bytes);
void release_bytes(void* data);

}  // namespace weft
