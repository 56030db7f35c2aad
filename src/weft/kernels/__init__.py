"""The operators that everything else is made of, each in a reference, a native and (later) a Triton form.

They are registered with torch.library: autograd, torch.compile and the choice by device are torch's. Every
result is the same, bit for bit, for any number of threads.
"""

from weft.kernels.attention import attention, attention_dot, attention_gatv2
from weft.kernels.csr import Transposed, build_csr, relabel, transpose_csr
from weft.kernels.dropout import dropout
from weft.kernels.extreme import extreme
from weft.kernels.fingerprint import fingerprint
from weft.kernels.gather import gather
from weft.kernels.project import project
from weft.kernels.relation import relation_matmul
from weft.kernels.sddmm import sddmm
from weft.kernels.segment import segment_matmul
from weft.kernels.softmax import edge_softmax
from weft.kernels.spmm import spmm

__all__ = [
    "Transposed",
    "attention",
    "attention_dot",
    "attention_gatv2",
    "build_csr",
    "dropout",
    "edge_softmax",
    "extreme",
    "fingerprint",
    "gather",
    "project",
    "relabel",
    "relation_matmul",
    "sddmm",
    "segment_matmul",
    "spmm",
    "transpose_csr",
]
