# SPDX-License-Identifier: Apache-2.0
"""Exact Top-K for the DeepSeek-Sparse-Attention lightning indexer.

`dosa.topk` returns the K best keys of every query without scoring every key in full, and exactly
those: keys are rejected only by a bound that is proven to dominate their score. Arrays of NumPy,
PyTorch, JAX and everything else that speaks DLPack are read in place.

Shapes are written with Q queries, H heads, D head dimension, N keys, K kept keys.

`import dosa` imports neither torch nor numpy; ``import dosa.torch`` registers `torch.ops.dosa`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dosa._core import simd_target
from dosa._core import version as _version
from dosa._counts import Counts
from dosa._decode import Witnesses, paged_gather, paged_insert, paged_topk
from dosa._errors import (
    ArgumentError,
    ArgumentTypeError,
    CertificateError,
    Error,
    FileError,
    InternalError,
    UnsupportedError,
)
from dosa._files import Tensors, Trace, load, load_tensors, save
from dosa._functions import explain, scores, topk, verify
from dosa._indexer import Indexer
from dosa._merge import merge_topk
from dosa._options import Options
from dosa._results import ROW_FIELDS, Stats, TopK

if TYPE_CHECKING:
    from dosa._reports import ROLES, Certificate, DeviceVerification, Verification

__version__ = _version()

__all__ = [
    "ROLES",
    "ROW_FIELDS",
    "ArgumentError",
    "ArgumentTypeError",
    "Certificate",
    "CertificateError",
    "Counts",
    "DeviceVerification",
    "Error",
    "FileError",
    "Indexer",
    "InternalError",
    "Options",
    "Stats",
    "Tensors",
    "TopK",
    "Trace",
    "UnsupportedError",
    "Verification",
    "Witnesses",
    "__version__",
    "explain",
    "load",
    "load_tensors",
    "merge_topk",
    "paged_gather",
    "paged_insert",
    "paged_topk",
    "save",
    "scores",
    "simd_target",
    "topk",
    "verify",
]


def __getattr__(name: str) -> object:
    # Reports are dataclasses, whose module takes longer to import than all of this package.
    if name in ("ROLES", "Certificate", "DeviceVerification", "Verification"):
        from dosa import _reports

        return getattr(_reports, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
