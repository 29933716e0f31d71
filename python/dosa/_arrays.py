# SPDX-License-Identifier: Apache-2.0
"""Arrays of any library as the extension reads them: views of the same memory, never copies."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, runtime_checkable

from dosa._errors import ArgumentError, ArgumentTypeError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

Element = Literal["code", "float32", "int32", "int64", "bfloat16"]

# DLDeviceType of DLPack; memory of a device's runtime on the host is host memory.
_HOST = (1, 3, 11)
_DEVICES = {2: "a CUDA device", 10: "a ROCm device", 13: "CUDA managed memory"}

_EXPECTED = {
    "code": "float8_e4m3fn, or uint8 holding its codes",
    "bfloat16": "bfloat16, or uint16 holding its bits",
}
_BITS = {"code": "uint8", "bfloat16": "uint16"}  # where NumPy has no such type


@runtime_checkable
class SupportsDLPack(Protocol):
    """Any array that exports its memory through DLPack: NumPy, PyTorch, JAX, CuPy, ..."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """Return a capsule."""

    def __dlpack_device__(self, *args: Any, **kwargs: Any) -> Any:
        """Return (device type, device id)."""


def is_tensor(value: object) -> bool:
    """Say whether `value` is a torch tensor, without importing torch."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor is not None and isinstance(value, tensor)


def view(name: str, value: object, element: Element) -> object:
    """Return an object whose memory the extension can take; None stays None.

    The extension checks device, dtype, rank, shape, strides, alignment of what it gets. Here is
    checked what DLPack does not tell, or what cannot be exported.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        Naming the argument, what was found and what is expected.
    """
    if value is None:
        return None
    if is_tensor(value):
        return _of_tensor(name, cast("Tensor", value), element)
    if type(value).__module__.partition(".")[0] in ("jax", "jaxlib"):
        value = _of_jax(name, value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _of_ndarray(name, value, element)
    if isinstance(value, SupportsDLPack):
        _check_device(name, value)
    return value


def _check_device(name: str, value: SupportsDLPack) -> None:
    """Refuse another device before anything is exported from it; the extension checks again."""
    device = value.__dlpack_device__()[0]
    if device not in _HOST:
        found = _DEVICES.get(device, f"device type {int(device)} of DLPack")
        raise ArgumentError.of(name, found, "host memory (device cpu)")


def _wrong_dtype(name: str, dtype: object, element: Element) -> ArgumentTypeError:
    found = str(dtype).removeprefix("torch.")
    return ArgumentTypeError.of(name, f"dtype {found}", _EXPECTED.get(element, element))


def _of_tensor(name: str, tensor: Tensor, element: Element) -> object:
    import torch

    if tensor.device.type != "cpu":
        raise ArgumentError.of(name, f"a tensor on {tensor.device}", "a tensor on cpu")
    check_tensor(name, tensor, element)
    # Not every version exports float8.
    return tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor


def check_tensor(name: str, tensor: Tensor, element: Element) -> None:
    """Refuse a tensor, of any device, whose memory is not what its shape and dtype say."""
    if tensor.layout is not _torch().strided:
        raise ArgumentError.of(name, f"a {tensor.layout} tensor", "a dense tensor")
    if tensor.requires_grad:
        raise ArgumentError.of(name, "a tensor that requires grad", f"{name}.detach()")
    if tensor.is_neg():
        raise ArgumentError.of(name, "a lazily negated view", f"{name}.resolve_neg()")
    if tensor.dtype not in _tensor_types(element):
        raise _wrong_dtype(name, tensor.dtype, element)
    _check_storage(name, tensor)


def _torch() -> Any:
    """Return the module, which is there where a tensor is."""
    return sys.modules["torch"]


@cache
def _tensor_types(element: Element) -> frozenset[Any]:
    if element == "code":
        return frozenset((_torch().uint8, _torch().float8_e4m3fn))
    return frozenset((getattr(_torch(), element),))


def _check_storage(name: str, tensor: Tensor) -> None:
    """Refuse a tensor whose storage was resized under it: it goes on to claim its shape."""
    count = tensor.numel()
    if count == 0:
        return
    if not tensor.is_contiguous():
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        count = 1 + sum((extent - 1) * stride for extent, stride in steps)
    needed = (tensor.storage_offset() + count) * tensor.element_size()
    found = tensor.untyped_storage().nbytes()
    if found < needed:
        expected = f"at least {needed} bytes for its shape {tuple(tensor.shape)}"
        raise ArgumentError.of(name, f"a storage of {found} bytes (freed or resized?)", expected)


def _of_ndarray(name: str, array: np.ndarray[Any, Any], element: Element) -> object:
    import numpy as np

    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentTypeError.of(name, "a masked array", "a plain array")
    if array.dtype.name == {"code": "float8_e4m3fn"}.get(element, element) and element in _BITS:
        array = array.view(_BITS[element])
    if array.dtype != np.dtype(_BITS.get(element, element)):
        raise _wrong_dtype(name, array.dtype, element)
    if any(stride % array.itemsize for stride in array.strides):
        expected = f"multiples of the item size {array.itemsize}"
        raise ArgumentError.of(name, f"byte strides {array.strides}", expected)
    return array


def _of_jax(name: str, array: Any) -> object:
    """On the host a JAX array shares its memory with NumPy, also where DLPack lacks its dtype."""
    import numpy as np

    if not hasattr(array, "is_deleted"):
        return array
    if array.is_deleted():
        raise ArgumentError.of(name, "a deleted JAX array", "a live one")
    platforms = sorted({device.platform for device in array.devices()})
    if platforms != ["cpu"] or len(array.devices()) != 1:
        found = f"a JAX array on {len(array.devices())} device(s) of {', '.join(platforms)}"
        raise ArgumentError.of(name, found, "one on a single cpu device")
    return np.asarray(array)


def empty(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
    """Return an uninitialised array of the library of `like`: torch, or NumPy where it is None."""
    if like is not None:
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype))
    import numpy as np

    return np.empty(shape, dtype)
