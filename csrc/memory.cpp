// Memory of what is made anew for every batch, taken again from batches that are gone.
//
// A batch has tens of megabytes. Asked of the system each time, most of the time of making it goes into page
// faults; and since the arrays are read and written all over the place, they are in huge pages.
#include "memory.h"

#include <pthread.h>

#include <cstdlib>
#include <map>
#include <mutex>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace weft {
namespace {

// DLPack's DLManagedTensor, version 0: by it an array becomes a tensor of any library without a copy, which
// calls `deleter` when its last view is gone.
struct Shared {
    void* data;
    int32_t device_type, device_id;  // 1: in the memory of the host
    int32_t num_dimensions;
    uint8_t kind, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
    void* context;
    void (*deleter)(Shared*);
};

// Before the data of every block.
struct Header {
    size_t bytes;  // of the block
    int64_t count;
    Shared shared;
};

constexpr size_t kHeader = 128;  // whole cache lines keep the data of a large block aligned
static_assert(sizeof(Header) <= kHeader);
constexpr size_t kSmall = size_t{1} << 19;  // below, malloc reuses memory well enough
constexpr size_t kHuge = size_t{1} << 21;
constexpr size_t kKept = size_t{256} << 20;  // bytes kept for later at most

// Free blocks by size. Never destroyed: tensors may be given back while the process ends.
struct Pool {
    std::mutex mutex;
    std::multimap<size_t, char*> blocks;
    size_t kept = 0;
};

Pool& pool() {
    static Pool* const made = [] {
        Pool* const one = new Pool;
        // A process may be forked while another thread holds the lock.
        pthread_atfork([] { pool().mutex.lock(); }, [] { pool().mutex.unlock(); },
                       [] { pool().mutex.unlock(); });
        return one;
    }();
    return *made;
}

// A kept block that is large enough and not far larger, or null.
char* take(size_t& bytes) {
    Pool& from = pool();
    const std::lock_guard<std::mutex> lock(from.mutex);
    const auto found = from.blocks.lower_bound(bytes);
    if (found == from.blocks.end() || found->first > bytes + bytes / 2 + kHuge) return nullptr;
    char* const block = found->second;
    bytes = found->first;
    from.kept -= bytes;
    from.blocks.erase(found);
    return block;
}

bool keep(char* block, size_t bytes) {
    Pool& to = pool();
    const std::lock_guard<std::mutex> lock(to.mutex);
    if (to.kept + bytes > kKept) return false;
    to.blocks.emplace_hint(to.blocks.lower_bound(bytes), bytes, block);  // the last one is the first taken
    to.kept += bytes;
    return true;
}

}  // namespace

void* allocate_bytes(size_t wanted) {
    size_t bytes = wanted + kHeader;
    char* block = nullptr;
    if (bytes < kSmall) {
        block = static_cast<char*>(std::malloc(bytes));
    } else {
        bytes = (bytes + kHuge - 1) / kHuge * kHuge;
        block = take(bytes);
        if (!block) {
            block = static_cast<char*>(std::aligned_alloc(kHuge, bytes));
            if (block) weft_advise(block, static_cast<int64_t>(bytes));
        }
    }
    if (!block) throw std::bad_alloc();
    reinterpret_cast<Header*>(block)->bytes = bytes;
    return block + kHeader;
}

void release_bytes(void* data) {
    if (!data) return;
    char* const block = static_cast<char*>(data) - kHeader;
    const size_t bytes = reinterpret_cast<Header*>(block)->bytes;
    if (bytes < kSmall || !keep(block, bytes)) std::free(block);
}

}  // namespace weft

// Gives uninitialised memory, to be handed over by weft_share.
WEFT_API int weft_allocate(int64_t bytes, void** to) {
    return weft::guarded([&](weft::Status& status) {
        *to = weft::allocate_bytes(static_cast<size_t>(bytes));
        status = weft::kOk;
    });
}

// Gives the record by which memory of weft_allocate is handed over as an array of `count` numbers; `kind` and
// `bits` are DLPack's. Its new owner gives the memory back.
WEFT_API weft::Shared* weft_share(void* data, int64_t count, int kind, int bits) {
    auto* const header = reinterpret_cast<weft::Header*>(static_cast<char*>(data) - weft::kHeader);
    header->count = count;
    weft::Shared& shared = header->shared = {};
    shared.data = data;
    shared.device_type = 1;
    shared.num_dimensions = 1;
    shared.kind = static_cast<uint8_t>(kind);
    shared.bits = static_cast<uint8_t>(bits);
    shared.lanes = 1;
    shared.shape = &header->count;
    shared.deleter = [](weft::Shared* one) { weft::release_bytes(one->data); };
    return &header->shared;
}

// Asks for huge pages in memory that is about to be written for the first time. Faulting in 134 MB takes 28
// ms of a core instead of 78, which is the time of a whole sum over 8 million edges. Only a hint: nothing
// depends on it.
WEFT_API int weft_advise(void* from, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t start = reinterpret_cast<uintptr_t>(from);
    const uintptr_t first = (start + weft::kHuge - 1) / weft::kHuge * weft::kHuge;
    const uintptr_t end = (start + static_cast<uintptr_t>(bytes)) / weft::kHuge * weft::kHuge;
    if (end > first) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#endif
    (void)from;
    (void)bytes;
    return weft::kOk;
}
