"""A batch on its way from the rank that sampled it to the one that trains on it.

A batch is a list of tensors whose order both ends know from the graph: which there are, how wide and of what
type, a header of numbers tells. Everything travels as bytes, in one message after the header.
"""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, cast

import torch
from torch import Tensor

from weft.graph.degrees import Degrees, RowDegrees
from weft.graph.parts.shard import Shard
from weft.graph.sparse import SparseFeatures
from weft.graph.views import GraphView
from weft.samplers.base import Batch
from weft.samplers.core.block import SampledBlock
from weft.samplers.workers.part_block import BatchDegrees, ByEdge, block_of_part

_TYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
_NONE = -1
_DIMS = 3
_WORDS = 1 + _DIMS  # of the header, a tensor: its type and its extents
_ALIGN = 8
Held = Tensor | None


def pack(batch: Batch, shard: Shard) -> list[Held]:
    """Return a batch that a `PartitionedSampler` of this shard made as tensors, in an order of their own."""
    first = cast(SampledBlock, batch.blocks[0])
    degrees = cast(BatchDegrees, first.degree_source).degrees
    numbers = [batch.seeds.numel(), *(block.num_src for block in batch.blocks)]
    tensors: list[Held] = [torch.tensor(numbers), batch.nodes, batch.y]
    tensors += [*_row_tensors(degrees.into), *_row_tensors(degrees.out_of)]
    for block in cast(list[SampledBlock], batch.blocks):
        tensors += [block.indptr, block.indices, block.edge_ids, block.edge_scale, block.edge_type]
        tensors += [cast(ByEdge, block.edge_data[name]).values for name in shard.edge_data]
    for kind in _featured(shard):
        x = batch.x if len(shard.node_types) == 1 else batch.x[kind]
        tensors += [x.indptr, x.indices, x.values] if isinstance(x, SparseFeatures) else [x]
    return tensors


def unpack(tensors: list[Held], shard: Shard, graph: GraphView, *, epoch: int, step: int) -> Batch:
    """Return the batch; `shard` is the receiver's part of the same graph, `graph` what batches belong to."""
    rest = iter(tensors)
    numbers, nodes, y = (_there(next(rest)).tolist(), _there(next(rest)), next(rest))
    num_seeds, *num_src = numbers
    degrees = BatchDegrees(Degrees(_row_degrees(rest), _row_degrees(rest)))
    blocks = [_block(rest, shard, nodes[:count], degrees) for count in num_src]
    features = {kind: _features(rest, shard, kind) for kind in _featured(shard)}
    x: Any = features if len(shard.node_types) > 1 else next(iter(features.values()), None)
    return Batch(
        graph, list(blocks), nodes, num_seeds=num_seeds, epoch=epoch, step=step, data={"x": x, "y": y}
    )


def header_size(hops: int, shard: Shard) -> int:
    """Return how many numbers the header of any batch has."""
    return _WORDS * (3 + 12 + hops * (5 + len(shard.edge_data)) + 3 * len(shard.node_types))


def to_bytes(tensors: list[Held], size: int) -> tuple[Tensor, Tensor]:
    """Return the header of some tensors, [size] int64, and their bytes one after the other."""
    words = [word for value in tensors for word in _described(value)]
    header = torch.tensor(words + [_NONE] * (size - len(words)))
    data = torch.zeros(num_bytes(header), dtype=torch.uint8)
    for value, target in zip(tensors, from_bytes(header, data)):
        if value is not None and target is not None:
            target.copy_(value.detach())
    return header, data


def num_bytes(header: Tensor) -> int:
    """Return how many bytes follow a header."""
    return sum(_extent(*entry)[1] for entry in _entries(header) if entry[0] is not None)


def from_bytes(header: Tensor, data: Tensor) -> list[Held]:
    """Return the tensors again; they share the memory of the bytes."""
    tensors: list[Held] = []
    start = 0
    for kind, shape in _entries(header):
        if kind is None:
            tensors.append(None)
            continue
        used, length = _extent(kind, shape)
        tensors.append(data[start : start + used].view(kind).reshape(shape))
        start += length
    return tensors


# A header


def _described(value: Held) -> list[int]:
    if value is None:
        return [_NONE] * _WORDS
    assert value.dim() <= _DIMS, f"a tensor of {value.dim()} dimensions in a batch"
    return [_TYPES.index(value.dtype), *value.shape, *[_NONE] * (_DIMS - value.dim())]


def _entries(header: Tensor) -> Iterator[tuple[torch.dtype | None, tuple[int, ...]]]:
    for kind, *extents in header.reshape(-1, _WORDS).tolist():
        shape = tuple(extent for extent in extents if extent != _NONE)
        yield (None if kind == _NONE else _TYPES[kind]), shape


def _extent(kind: torch.dtype | None, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the bytes of a tensor, and those up to where the next one begins."""
    assert kind is not None
    used = torch.Size(shape).numel() * kind.itemsize
    return used, -(-used // _ALIGN) * _ALIGN


# A batch


def _row_tensors(degrees: RowDegrees) -> list[Held]:
    return [getattr(degrees, item.name) for item in fields(RowDegrees)]


def _row_degrees(rest: Iterator[Held]) -> RowDegrees:
    return RowDegrees(*(next(rest) for _ in fields(RowDegrees)))  # type: ignore[arg-type]


def _block(rest: Iterator[Held], shard: Shard, src_ids: Tensor, degrees: BatchDegrees) -> SampledBlock:
    indptr, indices, edge_ids = (_there(next(rest)) for _ in range(3))
    edge_scale, edge_type = next(rest), next(rest)
    data = [_there(next(rest)) for _ in shard.edge_data]
    columns = (edge_ids, edge_scale, edge_type, data)
    return block_of_part(shard, indptr, indices, *columns, nodes=src_ids, degrees=degrees)


def _featured(shard: Shard) -> list[str]:
    return [kind for kind in shard.node_types if "x" in shard.node_data[kind]]


def _features(rest: Iterator[Held], shard: Shard, kind: str) -> Any:
    x = shard.node_data[kind]["x"]
    if not isinstance(x, SparseFeatures):
        return _there(next(rest))
    indptr, columns, values = (_there(next(rest)) for _ in range(3))
    return SparseFeatures(indptr, columns, values, (len(indptr) - 1, x.shape[1]))


def _there(value: Held) -> Tensor:
    assert value is not None, "both ends know which tensors there are"
    return value
