"""Kernels and layers on a GPU against torch and PyG; on a machine without a GPU there are no such cases."""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

import weft
from benchmarks.gpu import assert_near, bandwidth, cell, limit, measure, skewed
from benchmarks.measure import Step, Study, with_gradients
from weft import kernels
from weft.graph.message.block import Block
from weft.kernels import reference

WIDTH = 128
WIDTHS = (100, 256, 256, 47)


def _row_bytes(block: Block, width: int, size: int) -> float:
    """Return the bytes of one pass: one row per edge, one index per edge, and the rows written."""
    return block.num_edges * (width * size + 4) + block.num_dst * (width * size + 8)


def spmm() -> Iterator[str]:
    """Yield the rows of the sum over neighbours, forward."""
    yield "| graph | type | weft | torch CSR | gather + index_add | must move | at copy speed | ratio to it |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in ("products", "reddit", "arxiv"):
        block = skewed(name)
        for dtype in (torch.float32, torch.bfloat16):
            yield f"| {name} | {dtype} | {_spmm_cells(block, dtype)} |"


def _spmm_cells(block: Block, dtype: torch.dtype) -> str:
    x, graph = torch.randn(block.num_src, WIDTH, device="cuda").to(dtype), (block.indptr, block.indices)
    ours = measure(lambda: kernels.spmm(*graph, x))
    rivals = "– | –"
    if dtype == torch.float32:
        ones, shape = torch.ones(block.num_edges, device="cuda"), (block.num_dst, block.num_src)
        matrix = torch.sparse_csr_tensor(block.indptr, block.indices.long(), ones, shape)
        assert_near(kernels.spmm(*graph, x), matrix @ x)
        csr = measure(lambda: matrix @ x)
        plain = measure(lambda: reference.spmm(*graph, None, x, None, None, None, False), repeat=3)
        rivals = f"{cell(csr)} | {cell(plain)}"
    return f"{cell(ours)} | {rivals} | {limit(_row_bytes(block, WIDTH, x.element_size()), ours)}"


def layer(kind: str) -> Iterator[str]:
    """Yield the rows of one layer, forward and backward with the gradient of its input."""
    yield "| graph | weft | weft, bfloat16 autocast | PyG | must move | at copy speed | ratio to it |"
    yield "|---|---|---|---|---|---|---|"
    for name in ("products", "reddit", "arxiv"):
        yield f"| {name} | {_layer_cells(kind, skewed(name))} |"


def _layer_cells(kind: str, block: Block) -> str:
    torch.manual_seed(0)
    theirs, ours = _convolutions(kind)
    x = torch.randn(block.num_src, WIDTH, device="cuda").requires_grad_()
    grad = torch.randn(block.num_src, WIDTH, device="cuda")
    edge_index = torch.stack([block.indices.long(), reference.edge_rows(block.indptr, block.num_edges)])

    def half() -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return ours(block, x).float()

    leaves, rival_leaves = ([x, *dict(sorted(y.named_parameters())).values()] for y in (ours, theirs))
    step = with_gradients(lambda: ours(block, x), leaves, grad)
    rival_step = with_gradients(lambda: theirs(x, edge_index), rival_leaves, grad)
    found, low = measure(step), measure(with_gradients(half, leaves, grad))
    x.grad = None
    rival = measure(rival_step, repeat=3)
    if rival is not None:
        results = [y.clone() for y in rival_step()]
        for a, b in zip(step(), results, strict=True):
            assert_near(a, b, 1e-3)
    moved = 2 * _row_bytes(block, WIDTH, 4)  # one pass each way
    return f"{cell(found)} | {cell(low)} | {cell(rival)} | {limit(moved, found)}"


def _convolutions(kind: str) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Return PyG's convolution and ours with the same weights."""
    from torch_geometric import nn as pyg

    if kind == "sage":
        theirs, ours = pyg.SAGEConv(WIDTH, WIDTH), weft.nn.SAGE(WIDTH, WIDTH)
    else:
        theirs = pyg.GATConv(WIDTH, WIDTH // 4, heads=4, add_self_loops=False)
        ours = weft.nn.GAT(WIDTH, WIDTH // 4, heads=4)
    ours.load_state_dict(theirs.state_dict())
    return theirs.cuda(), ours.cuda()


def epoch() -> Iterator[str]:
    """Yield the rows of a full-graph epoch of SAGE 3 x 256 on the products size, 100 features, 47 classes."""
    yield "| type | weft | bytes of the sums | at copy speed | ratio to it |"
    yield "|---|---|---|---|---|"
    block = skewed("products")
    x = torch.randn(block.num_src, WIDTHS[0], device="cuda")
    y = torch.randint(WIDTHS[-1], (block.num_src,), device="cuda")
    for dtype in (torch.float32, torch.bfloat16):
        found = measure(_epoch_step(block, x, y, dtype), repeat=5)
        # the sum of the input is remembered; the other two layers sum the narrower side, both ways
        size = 4 if dtype == torch.float32 else 2
        moved = 2 * sum(_row_bytes(block, width, size) for width in WIDTHS[2:])
        yield f"| {dtype} | {cell(found)} | {limit(moved, found)} |"


def _epoch_step(block: Block, x: Tensor, y: Tensor, dtype: torch.dtype) -> Step:
    model = torch.nn.ModuleList(weft.nn.SAGE(a, b) for a, b in pairwise(WIDTHS)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)

    def step() -> None:
        with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
            h = x
            for number, conv in enumerate(model):
                h = conv(block, h if number == 0 else h.relu())
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(h.float(), y).backward()
        optimizer.step()

    return step


_NOTE = (
    "Generated graphs of the sizes of ogbn-arxiv, ogbn-products and Reddit; memory is what is allocated "
    "above the inputs, both CSR directions being inputs. 'Must move' counts a row and an index per edge for "
    "each pass over the edges and the rows written; with cache hits the ratio can be below 1."
)


def _cases() -> list[Study]:
    where = f"{torch.cuda.get_device_name()}"
    sizes = f"width {WIDTH}, {where}"
    note = f"{_NOTE} A copy moves {bandwidth() / 1e12:.2f} TB/s here."
    return [
        Study("gpu_spmm", f"Sum over neighbours, forward, {sizes}", spmm, note),
        Study("gpu_sage_layer", f"SAGE layer, forward + backward, {sizes}", lambda: layer("sage"), note),
        Study("gpu_gat_layer", f"GAT layer 4 x 32, forward + backward, {sizes}", lambda: layer("gat"), note),
        Study("gpu_epoch", f"Full-graph epoch, SAGE 3 x 256, products size, {where}", epoch, note),
    ]


CASES = _cases() if torch.cuda.is_available() else []
