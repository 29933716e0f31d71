# SPDX-License-Identifier: Apache-2.0
"""The array libraries of a CUDA device: what their arrays are, their stream, their memory.

Of each array only its address, shape and strides are read; nothing is copied and nothing waits.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol, cast

from dosa import _core
from dosa._arrays import Element, SupportsDLPack, check_tensor, is_tensor
from dosa._errors import ArgumentError, ArgumentTypeError

if TYPE_CHECKING:
    from torch import Tensor

# DLPack's type code and bits of what the engine reads.
_TYPES: dict[str, tuple[int, int]] = {
    "code": (1, 8),
    "int32": (0, 32),
    "int64": (0, 64),
    "float32": (2, 32),
    "bfloat16": (4, 16),
}
_KINDS = {"u": 1, "i": 0, "f": 2, "b": 6, "c": 5}  # of a typestr of __cuda_array_interface__
_CUDA = (2, 13)  # DLDeviceType: memory of a device, and managed memory


class Library(Protocol):
    """What makes the results and the workspace of a call, in the library of `q`."""

    device: int
    stream: int

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an uninitialised array on the device."""

    def finish(self, array: Any) -> Any:
        """Return a result as the caller gets it."""

    def capturing(self) -> bool:
        """Return whether the stream records a CUDA graph."""


def on_device(value: object) -> bool:
    """Say whether `value` is an array on a CUDA device."""
    if is_tensor(value):
        return bool(cast("Tensor", value).device.type == "cuda")
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return False
    if isinstance(value, SupportsDLPack):
        try:
            return int(value.__dlpack_device__()[0]) in _CUDA
        except Exception:  # it says nothing about its place: the host's checks name the reason
            return False
    return hasattr(value, "__cuda_array_interface__")


def library_of(q: object) -> Library:
    """Return the library of an array that is `on_device`, at its current stream."""
    if not _core.HAS_DEVICE:
        from dosa._errors import UnsupportedError

        raise UnsupportedError(
            "q: found an array on a CUDA device, expected one on the host: this package was built "
            "without its device engine (no CUDA compiler, or DOSA_CUDA=OFF)"
        )
    if is_tensor(q):
        return _Torch(cast("Tensor", q))
    if _package(q) == "cupy":
        return _Cupy(q)
    return _Other(q)


def describe(name: str, value: object, element: Element, library: Library) -> Any:
    """Return what the extension reads of an array on the device of `library`; None stays None.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        Naming the argument, what was found and what is expected.
    """
    if value is None:
        return None
    if is_tensor(value):
        return _of_tensor(name, cast("Tensor", value), element, library)
    if hasattr(value, "__cuda_array_interface__") and _package(value) not in ("jax", "jaxlib"):
        return _of_interface(name, value, library)
    if isinstance(value, SupportsDLPack):
        device_type, device = value.__dlpack_device__()
        if device_type not in _CUDA:
            raise _elsewhere(name, "an array on the host", library)
        if device != library.device:
            raise _elsewhere(name, f"an array on cuda:{device}", library)
        return value.__dlpack__(stream=library.stream or 1)
    raise ArgumentTypeError.of(name, type(value).__name__, "an array on a CUDA device")


def _package(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _elsewhere(name: str, found: str, library: Library) -> ArgumentError:
    return ArgumentError.of(name, found, f"one on cuda:{library.device}, as q")


def _of_tensor(name: str, tensor: Tensor, element: Element, library: Library) -> Any:
    device = tensor.device
    if device.type != "cuda" or device.index != library.device:
        raise _elsewhere(name, f"a tensor on {device}", library)
    check_tensor(name, tensor, element)
    return (tensor.data_ptr(), tensor.shape, tensor.stride(), *_TYPES[element], library.device)


def _of_interface(name: str, value: Any, library: Library) -> Any:
    """CuPy, Numba and others: version 2 or 3 of the CUDA array interface."""
    found = value.__cuda_array_interface__
    kind, size = found["typestr"][1], int(found["typestr"][2:])
    if found["typestr"][0] == ">" or kind not in _KINDS:
        raise ArgumentTypeError.of(name, f"dtype {found['typestr']}", "a type of this machine")
    if found.get("mask") is not None:
        raise ArgumentTypeError.of(name, "a masked array", "a plain array")
    strides = found.get("strides")
    if strides is not None:
        if any(stride % size for stride in strides):
            expected = f"multiples of the item size {size}"
            raise ArgumentError.of(name, f"byte strides {strides}", expected)
        strides = tuple(stride // size for stride in strides)
    address = found["data"][0] or 0
    device = _core.device_of_pointer(address) if address else library.device
    if device != library.device:
        where = "an array on the host" if device < 0 else f"an array on cuda:{device}"
        raise _elsewhere(name, where, library)
    stream = found.get("stream")
    if stream is not None:
        _core.device_order_streams(stream, library.stream, library.device)
    return (address, tuple(found["shape"]), strides, _KINDS[kind], 8 * size, device)


class _Torch:
    def __init__(self, q: Tensor) -> None:
        import torch

        self._torch = torch
        self._place = q.device
        self.device: int = q.device.index
        self.stream: int = torch.cuda.current_stream(q.device).cuda_stream

    def empty(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        return self._torch.empty(shape, dtype=getattr(self._torch, dtype), device=self._place)

    def finish(self, array: Tensor) -> Tensor:
        return array

    def capturing(self) -> bool:
        return bool(self._torch.cuda.is_current_stream_capturing())


class _Cupy:
    def __init__(self, q: Any) -> None:
        import cupy

        self._cupy = cupy
        self.device = int(q.device.id)
        with cupy.cuda.Device(self.device):
            self._current = cupy.cuda.get_current_stream()
        self.stream = int(self._current.ptr)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        with self._cupy.cuda.Device(self.device):
            return self._cupy.empty(shape, dtype)

    def finish(self, array: Any) -> Any:
        return array

    def capturing(self) -> bool:
        return bool(self._current.is_capturing())


class _Other:
    """A library that is only known by its arrays: the default stream, and memory of our own."""

    def __init__(self, q: Any) -> None:
        self._from_dlpack = self._import(q)
        self.stream = 0
        if isinstance(q, SupportsDLPack):
            self.device = int(q.__dlpack_device__()[1])
        else:
            address = q.__cuda_array_interface__["data"][0]
            self.device = max(0, _core.device_of_pointer(address)) if address else 0

    @staticmethod
    def _import(q: object) -> Any:
        if _package(q) not in ("jax", "jaxlib"):
            return None
        import jax

        return jax.dlpack.from_dlpack

    def empty(self, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        return DeviceArray(shape, dtype, self.device, self.stream)

    def finish(self, array: DeviceArray) -> Any:
        return array if self._from_dlpack is None else self._from_dlpack(array)

    def capturing(self) -> bool:
        return False


class DeviceArray:
    """A result on a CUDA device for libraries other than PyTorch, CuPy and JAX.

    It exports its memory by DLPack and by `__cuda_array_interface__`; whoever takes it waits, on
    its own stream, for the call that made it.
    """

    def __init__(self, shape: tuple[int, ...], dtype: str, device: int, stream: int) -> None:
        self.shape, self.dtype = shape, dtype
        self._device, self._stream = device, stream
        self._address, self._array = _core.device_allocate(list(shape), dtype, device, stream)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        kind = {"int32": "<i4", "float32": "<f4", "uint8": "|u1"}[self.dtype]
        stream = self._stream or 1
        data = (self._address, False)
        return {"shape": self.shape, "typestr": kind, "data": data, "stream": stream, "version": 3}

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self._device)

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        if stream != -1:
            _core.device_order_streams(self._stream, stream or 0, self._device)
        return self._array.__dlpack__(**options)
