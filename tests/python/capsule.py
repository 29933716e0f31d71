# SPDX-License-Identifier: Apache-2.0
"""DLPack capsules made by hand, to say what no array library would (dlpack.h, DLPack 1.1)."""

from __future__ import annotations

import ctypes
from typing import Any


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _DLManagedTensor(ctypes.Structure):
    _fields_ = (
        ("tensor", _DLTensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class Claim:
    """An exporter that claims whatever it is told; memory is what `data` points to."""

    def __init__(
        self,
        shape: tuple[int, ...],
        data: int = 0,
        code: int = 1,
        bits: int = 8,
        lanes: int = 1,
        device: int = 1,
        offset: int = 0,
        host: bool = True,
    ) -> None:
        extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        tensor = _DLTensor(data, device, 0, len(shape), code, bits, lanes, extents, None, offset)
        self._device = 1 if host else device
        self._managed = _DLManagedTensor(tensor, None, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0

    def __dlpack__(self, **_: Any) -> Any:
        return _new(ctypes.addressof(self._managed), b"dltensor", None)
