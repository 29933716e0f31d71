# SPDX-License-Identifier: Apache-2.0
"""The arrays of calls over ranks, on the host or on a device: views, digests, windows."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dosa._arrays import is_tensor
from dosa._errors import ArgumentError, ArgumentTypeError
from dosa._libraries import on_device
from dosa._shards import Placement


def torch_module() -> Any:
    import torch

    return torch


def check_library(q: Any) -> None:
    if on_device(q) and not is_tensor(q):
        raise ArgumentTypeError.of("q", type(q).__name__, "a torch tensor, on a CUDA device")


def plain(array: Any) -> Any:
    """Return the same memory as a NumPy array, or as a tensor on a device; codes as uint8."""
    if is_tensor(array):
        array = array.detach()
        plain = array.view(torch_module().uint8) if array.element_size() == 1 else array
        return plain if plain.is_cuda else np.asarray(plain.numpy())
    found = np.asarray(array)
    return found.view(np.uint8) if found.dtype.itemsize == 1 else found


def on_host(array: Any) -> NDArray[Any]:
    found = plain(array)
    return found if isinstance(found, np.ndarray) else np.asarray(found.cpu().numpy())


def digest_of(array: Any) -> int:
    """Return a number that differs where the values do, for all that mistakes can do."""
    if array is None:
        return 0
    seen = plain(array)
    if isinstance(seen, np.ndarray):
        return zlib.crc32(np.ascontiguousarray(seen).data)
    return _device_digest(seen)


def _device_digest(tensor: Any) -> int:
    """Return sums of the rows and columns of a tensor's bits, weighted by their places."""
    torch = torch_module()
    rows = tensor.reshape(tensor.shape[0] if tensor.dim() > 1 else 1, -1)
    if rows.numel() == 0:
        return 0
    wide = rows.element_size() == 1 and rows.shape[1] % 4 == 0
    bits = rows.contiguous().view(torch.int32) if wide or rows.element_size() == 4 else rows
    found = 0
    for dim, factor in ((1, 1), (0, 0x9E3779B9)):
        sums = bits.sum(dim, dtype=torch.int64)
        odd = 2 * torch.arange(sums.numel(), device=sums.device) + 1
        found += factor * int((sums * odd).sum())
    return (found + 2**63) % 2**64 - 2**63


def clamped_windows(
    like: Any, k_start: Any, k_end: Any, queries: int, num_keys: int
) -> tuple[Any, Any]:
    """Return the windows of all rows, clamped: tensors where `like` is on a device."""
    if like is not None and on_device(like):
        torch = torch_module()
        place = {"dtype": torch.int64, "device": like.device}
        start = torch.zeros(queries, **place) if k_start is None else k_start.to(torch.int64)
        end = torch.full((queries,), num_keys, **place) if k_end is None else k_end.long()
    else:
        start = np.zeros(queries, np.int64) if k_start is None else plain(k_start).astype(np.int64)
        end = np.full(queries, num_keys) if k_end is None else plain(k_end).astype(np.int64)
    return start.clip(0, num_keys), end.clip(0, num_keys)


def local_windows(
    like: Any, placement: Placement, k_start: Any, k_end: Any, queries: int
) -> tuple[Any, Any]:
    """Return the ranges of local keys that lie in the rows' windows."""
    ends = clamped_windows(like, k_start, k_end, queries, placement.num_keys)
    found = [placement.count_below(end) for end in ends]
    first, last = (e.astype(np.int32) if isinstance(e, np.ndarray) else e.int() for e in found)
    return first, last


def each_query(lens: Any, next_n: int, most: int | None) -> Any:
    """Return (B, next_n) lengths: of each query, at most `most`."""
    if lens.ndim == 1:
        before: Any = np.arange(next_n - 1, -1, -1, dtype=np.int32)
        if is_tensor(lens):
            before = torch_module().arange(next_n - 1, -1, -1, dtype=lens.dtype, device=lens.device)
        lens = lens[:, None] - before
    return lens if most is None else lens.clip(max=most)


def slice_rows(name: str, array: Any, rows: tuple[int, int], queries: int) -> Any:
    """Return the rows of an array that has one for each query."""
    found = plain(array)
    if found.shape[0] != queries:
        raise ArgumentError.of(name, f"{found.shape[0]} rows", str(queries))
    return found[slice(*rows)]
