"""Layers of graphs of several relations on a GPU against PyG, forward and backward with all gradients."""

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import HGTConv, RGCNConv

from benchmarks.cases.gpu_messages import Call, inputs, rows
from benchmarks.cases.messages import HEADS, WIDTH
from benchmarks.measure import Study
from weft import kernels
from weft.graph.message.block import Block
from weft.layers import layers

RELATIONS = 8


@functools.cache
def typed() -> tuple[Block, Tensor, Tensor]:
    """Return the edges of `inputs` with relations at random, and as PyG takes them, by destination."""
    given = inputs()
    draw = torch.Generator("cuda").manual_seed(1)
    kinds = torch.randint(RELATIONS, (given.edges,), generator=draw, device="cuda")
    ends = given.edge_index
    indptr, indices, order = kernels.build_csr(ends[0], ends[1], given.nodes, edge_type=kinds)
    block = Block(indptr, indices, num_src=given.nodes, edge_type=kinds[order].int(), num_relations=RELATIONS)
    return block, ends[:, order], kinds[order]


def rgcn() -> Iterator[str]:
    """Yield the rows of R-GCN."""
    block, ends, kinds = typed()
    ours = layers["rgcn"](WIDTH, WIDTH, num_relations=RELATIONS).to("cuda")
    theirs = RGCNConv(WIDTH, WIDTH, RELATIONS).to("cuda")
    theirs.load_state_dict(ours.state_dict())
    compiled: Any = torch.compile(theirs)
    yield from rows(
        {
            "weft": (ours, lambda x: ours(block, x)),
            "PyG": (theirs, lambda x: theirs(x, ends, kinds)),
            "PyG, torch.compile": (theirs, lambda x: compiled(x, ends, kinds)),
        },
        None,
    )


def hgt() -> Iterator[str]:
    """Yield the rows of HGT: one type of nodes, several relations."""
    block, ends, kinds = typed()
    triples = tuple(("node", f"r{number}", "node") for number in range(RELATIONS))
    ours = layers["hgt"](WIDTH, WIDTH, edge_types=triples, heads=HEADS).to("cuda")
    theirs = HGTConv(WIDTH, WIDTH, (["node"], list(triples)), heads=HEADS).to("cuda")
    by_relation = {each: ends[:, kinds == number] for number, each in enumerate(triples)}

    def call(conv: Any) -> Call:
        return lambda x: conv({"node": x}, by_relation)["node"]

    yield from rows(
        {
            "weft": (ours, lambda x: ours(block, x)),
            "layer of PyG": (theirs, call(theirs)),
            "layer of PyG, torch.compile": (theirs, call(torch.compile(theirs))),
        },
        None,
    )


def _studies() -> list[Study]:
    size = f"{RELATIONS} relations, {WIDTH} columns, forward + backward, {torch.cuda.get_device_name()}"
    note = "1,000,000 nodes, 20,000,000 edges and their relations at random; memory is above the inputs."
    return [
        Study(f"{name}_gpu", f"{name}, {size}", each, note)
        for name, each in {"rgcn": rgcn, "hgt": hgt}.items()
    ]


CASES = _studies() if torch.cuda.is_available() else []
