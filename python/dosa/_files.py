# SPDX-License-Identifier: Apache-2.0
"""Safetensors files, read and written by the same code as in the command."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dosa import _core
from dosa._arrays import SupportsDLPack, is_tensor
from dosa._errors import ArgumentTypeError
from dosa._results import TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Where NumPy has no such type: unsigned integers that hold the codes.
_TO_NUMPY = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "BF16": "uint16",
    "F8_E4M3": "uint8",
    "F8_E5M2": "uint8",
    "F8_E8M0": "uint8",
    "F8_E4M3FNUZ": "uint8",
    "F8_E5M2FNUZ": "uint8",
}
_FROM_NUMPY = {
    **{numpy: name for name, numpy in reversed(_TO_NUMPY.items())},
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}
_Entry = tuple[str, str, tuple[int, ...], "NDArray[Any]"]


class Trace(NamedTuple):
    """The inputs of an indexer, in the order in which every call takes them.

    Read-only views of a mapped file, which stays open as long as any of them is in use:
    ``dosa.topk(*dosa.load(path), topk=512)``.
    """

    q: NDArray[Any]
    """(Q, H, D) uint8, e4m3fn codes."""
    k: NDArray[Any]
    """(N, D) uint8, e4m3fn codes."""
    k_scale: NDArray[Any]
    """(N,) float32."""
    weights: NDArray[Any]
    """(Q, H) float32."""
    k_start: NDArray[Any]
    """(Q,) int32."""
    k_end: NDArray[Any]
    """(Q,) int32."""


class Tensors(dict[str, "NDArray[Any]"]):
    """The tensors of a file by name, read-only views of it.

    Attributes
    ----------
    metadata : dict of str to str
        What the file says about itself.
    dtypes : dict of str to str
        The type of each tensor as the file names it. Those that NumPy lacks (BF16, F8_E4M3, ...)
        come as unsigned integers that hold their codes.
    """

    metadata: dict[str, str]
    dtypes: dict[str, str]

    def __init__(self, entries: list[_Entry], metadata: dict[str, str]) -> None:
        super().__init__((entry[0], _array(entry)) for entry in entries)
        self.dtypes = {name: dtype for name, dtype, _, _ in entries}
        self.metadata = metadata


def load(path: str | os.PathLike[str]) -> Trace:
    """Read the inputs of an indexer.

    Parameters
    ----------
    path : str or path
        A safetensors file with q (Q,H,D) F8_E4M3, k (N,D) F8_E4M3, k_scale (N) F32, weights (Q,H)
        F32, k_start (Q) I32, k_end (Q) I32. Other tensors in it are not looked at.

    Returns
    -------
    Trace
        Views of the mapped file. A file that is cut short by someone else while it is in use ends
        the process (SIGBUS), as for every mapping.

    Raises
    ------
    OSError
        There is no such file, or it may not be read.
    dosa.FileError
        It is no safetensors file, or not one of these tensors; names the tensor.
    """
    return Trace(*(_array(entry) for entry in _core.open_trace(_readable(path)).entries()))


def load_tensors(path: str | os.PathLike[str]) -> Tensors:
    """Read all tensors of a safetensors file, such as the results of ``dosa run --out``.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    Tensors
        A dict of read-only arrays, with the attributes `metadata` and `dtypes`.

    Raises
    ------
    OSError, dosa.FileError
        As for `dosa.load`.
    """
    file = _core.open_file(_readable(path))
    return Tensors(file.entries(), file.metadata)


def save(
    path: str | os.PathLike[str],
    tensors: Trace | TopK[Any] | Mapping[str, SupportsDLPack],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a safetensors file; it appears under its name complete or not at all.

    Parameters
    ----------
    path : str or path
        The file; replaced where it exists.
    tensors : Trace, TopK or dict of arrays
        A Trace is written as `dosa.load` reads it; of a TopK, indices and, where there, scores; of
        a dict of arrays, all, with the types of the arrays (those of `Tensors` as in their file).
    metadata : dict of str to str, optional
        What the file says about itself. Default: that of a `Tensors`, else none.

    Raises
    ------
    dosa.ArgumentTypeError
        An array of a type that the format does not know, or that is no host array.
    dosa.FileError
        The file cannot be written.
    """
    dtypes: dict[str, str] = {}
    arrays: Mapping[str, Any]
    if isinstance(tensors, Trace):
        arrays, dtypes = tensors._asdict(), {"q": "F8_E4M3", "k": "F8_E4M3"}
    elif isinstance(tensors, TopK):
        arrays = {"indices": tensors.indices}
        if tensors.scores is not None:
            arrays["scores"] = tensors.scores
    else:
        arrays = tensors
    if isinstance(tensors, Tensors):
        dtypes, metadata = tensors.dtypes, tensors.metadata if metadata is None else metadata
    entries = [_entry(name, value, dtypes.get(name)) for name, value in arrays.items()]
    _core.write_file(os.fspath(path), entries, dict(metadata or {}))


def _readable(path: str | os.PathLike[str]) -> str:
    """Let Python raise its own error where there is no such file."""
    with open(path, "rb"):
        return os.fspath(path)


def _array(entry: _Entry) -> NDArray[Any]:
    name, dtype, shape, data = entry
    if dtype not in _TO_NUMPY:
        raise ArgumentTypeError.of(name, f"dtype {dtype}", f"one of {', '.join(_TO_NUMPY)}")
    return data.view(_TO_NUMPY[dtype]).reshape(shape)


def _entry(name: str, value: Any, stated: str | None) -> _Entry:
    """Return what the writer takes; `stated` is the type to write where the array may hold it."""
    import numpy as np

    tensor = is_tensor(value)
    if not tensor:
        value = np.asarray(value)
    found = str(value.dtype).removeprefix("torch.")
    dtype = stated if stated is not None and _fits(stated, found) else _FROM_NUMPY.get(found)
    if dtype is None:
        raise ArgumentTypeError.of(name, f"dtype {found}", f"one of {', '.join(_FROM_NUMPY)}")
    shape = tuple(value.shape)
    if tensor:
        import torch

        flat = value.detach().cpu().resolve_neg().resolve_conj().contiguous().view(-1)
        return name, dtype, shape, flat.view(torch.uint8).numpy()
    return name, dtype, shape, np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def _fits(dtype: str, numpy_name: str) -> bool:
    """Whether an array of this type may hold codes of `dtype`."""
    return _TO_NUMPY.get(dtype) == numpy_name or _FROM_NUMPY.get(numpy_name) == dtype
