#include "core.h"

// Raised whenever a signature of the C interface changes; the Python side refuses another number.
WEFT_API int weft_abi_version() { return 1; }
