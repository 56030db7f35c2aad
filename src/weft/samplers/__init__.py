"""Ways of making mini-batches, one a file, entered in a registry by name.

sampler = weft.samplers.NeighborSampler(graph, fanout=[15, 10, 5], seed=0)
batch = sampler.sample(seeds, epoch=0)
model(batch.blocks, batch.x)              # one row per seed
batch.to_pyg()                            # the same for an unmodified PyG model
for batch in weft.samplers.Loader(sampler, batch_size=1024): ...           # prepared by threads, in order
"""

from weft.samplers.base import Batch, Sampler, samplers
from weft.samplers.cluster import ClusterSampler
from weft.samplers.edges import EdgeBatch, EdgeLoader, split_edges
from weft.samplers.labor import LaborSampler
from weft.samplers.links.link_batch import LinkBatch
from weft.samplers.links.link_loader import LinkNeighborLoader
from weft.samplers.loader import Loader
from weft.samplers.negative import NegativeSampler
from weft.samplers.neighbor import NeighborSampler
from weft.samplers.saint import SaintSampler

__all__ = [
    "Batch",
    "ClusterSampler",
    "EdgeBatch",
    "EdgeLoader",
    "LaborSampler",
    "LinkBatch",
    "LinkNeighborLoader",
    "Loader",
    "NegativeSampler",
    "NeighborSampler",
    "SaintSampler",
    "Sampler",
    "samplers",
    "split_edges",
]
