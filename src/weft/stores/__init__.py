"""Where feature rows lie, one kind a file, entered in a registry by name.

store = weft.stores.MmapStore("features.npy")                         # larger than memory
store = weft.stores.CachedStore(store, weft.stores.out_degree(graph))   # what is read most often, in memory
graph = graph.with_data(x=store)                                        # a loader reads what batches need
store.counters                                                          # rows asked for, hits, bytes read
"""

from weft.stores.base import Counters, FeatureRows, Store, stores
from weft.stores.cached import CachedStore
from weft.stores.memory import MemoryStore
from weft.stores.mmap import MmapStore
from weft.stores.open import open_store
from weft.stores.optim import RowwiseAdagrad, SparseAdagrad, SparseAdam, SparseSGD
from weft.stores.rankers import frequency, importance, out_degree
from weft.stores.shared import SharedStore
from weft.stores.sliced import SlicedStore

__all__ = [
    "CachedStore",
    "Counters",
    "FeatureRows",
    "MemoryStore",
    "MmapStore",
    "RowwiseAdagrad",
    "SharedStore",
    "SlicedStore",
    "SparseAdagrad",
    "SparseAdam",
    "SparseSGD",
    "Store",
    "frequency",
    "importance",
    "open_store",
    "out_degree",
    "stores",
]
