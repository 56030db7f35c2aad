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
from weft.graph.held import HeldGraph
from weft.graph.parts.shard import Shard
from weft.graph.sparse import SparseFeatures
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
    degrees = cast(BatchDegrees, first._degrees).degrees
    numbers = [batch.seeds.numel(), *(block.num_src for block in batch.blocks)]
    held: list[Held] = [torch.tensor(numbers), batch.nodes, batch.y]
    held += [*_row_tensors(degrees.into), *_row_tensors(degrees.out_of)]
    for block in cast(list[SampledBlock], batch.blocks):
        held += [block.indptr, block.indices, block.edge_ids, block.edge_scale, block.edge_type]
        held += [cast(ByEdge, block._edge_data[name]).values for name in shard.edge_data]
    for kind in _featured(shard):
        x = batch.x if len(shard.node_types) == 1 else batch.x[kind]
        held += [x.indptr, x.indices, x.values] if isinstance(x, SparseFeatures) else [x]
    return held


def unpack(held: list[Held], shard: Shard, graph: HeldGraph, *, epoch: int, step: int) -> Batch:
    """Return the batch; `shard` is the receiver's part of the same graph, `graph` what batches belong to."""
    given = iter(held)
    numbers, nodes, y = (_there(next(given)).tolist(), _there(next(given)), next(given))
    num_seeds, *num_src = numbers
    degrees = BatchDegrees(Degrees(_row_degrees(given), _row_degrees(given)))
    blocks = [_block(given, shard, nodes[:count], degrees) for count in num_src]
    found = {kind: _features(given, shard, kind) for kind in _featured(shard)}
    x: Any = found if len(shard.node_types) > 1 else next(iter(found.values()), None)
    return Batch(
        graph, list(blocks), nodes, num_seeds=num_seeds, epoch=epoch, step=step, held={"x": x, "y": y}
    )


def header_size(hops: int, shard: Shard) -> int:
    """Return how many numbers the header of any batch has."""
    return _WORDS * (3 + 12 + hops * (5 + len(shard.edge_data)) + 3 * len(shard.node_types))


def to_bytes(held: list[Held], size: int) -> tuple[Tensor, Tensor]:
    """Return the header of some tensors, [size] int64, and their bytes one after the other."""
    words = [word for value in held for word in _described(value)]
    header = torch.tensor(words + [_NONE] * (size - len(words)))
    data = torch.zeros(num_bytes(header), dtype=torch.uint8)
    for value, place in zip(held, from_bytes(header, data)):
        if value is not None and place is not None:
            place.copy_(value.detach())
    return header, data


def num_bytes(header: Tensor) -> int:
    """Return how many bytes follow a header."""
    return sum(_extent(*entry)[1] for entry in _entries(header) if entry[0] is not None)


def from_bytes(header: Tensor, data: Tensor) -> list[Held]:
    """Return the tensors again; they share the memory of the bytes."""
    held: list[Held] = []
    start = 0
    for kind, shape in _entries(header):
        if kind is None:
            held.append(None)
            continue
        used, length = _extent(kind, shape)
        held.append(data[start : start + used].view(kind).reshape(shape))
        start += length
    return held


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


def _row_degrees(given: Iterator[Held]) -> RowDegrees:
    return RowDegrees(*(next(given) for _ in fields(RowDegrees)))  # type: ignore[arg-type]


def _block(given: Iterator[Held], shard: Shard, src_ids: Tensor, degrees: BatchDegrees) -> SampledBlock:
    indptr, indices, edge_ids = (_there(next(given)) for _ in range(3))
    edge_scale, edge_type = next(given), next(given)
    data = [_there(next(given)) for _ in shard.edge_data]
    held = (edge_ids, edge_scale, edge_type, data)
    return block_of_part(shard, indptr, indices, *held, nodes=src_ids, degrees=degrees)


def _featured(shard: Shard) -> list[str]:
    return [kind for kind in shard.node_types if "x" in shard.node_data[kind]]


def _features(given: Iterator[Held], shard: Shard, kind: str) -> Any:
    x = shard.node_data[kind]["x"]
    if not isinstance(x, SparseFeatures):
        return _there(next(given))
    indptr, columns, values = (_there(next(given)) for _ in range(3))
    return SparseFeatures(indptr, columns, values, (len(indptr) - 1, x.shape[1]))


def _there(value: Held) -> Tensor:
    assert value is not None, "both ends know which tensors there are"
    return value
