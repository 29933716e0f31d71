# SPDX-License-Identifier: Apache-2.0
"""Arrays that are taken as they are: views, strides, read-only memory, other exporters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dosa
import oracle
from dosa import _core
from dosa._arrays import view


def padded(array: Any) -> Any:
    """The same rows in a wider array."""
    wide = np.full((array.shape[0], int(np.prod(array.shape[1:])) + 13), 0x7B, array.dtype)
    rows = wide[:, : wide.shape[1] - 13]
    rows[:] = array.reshape(array.shape[0], -1)
    return np.lib.stride_tricks.as_strided(rows, array.shape, (rows.strides[0], *array.strides[1:]))


def read_only(array: Any) -> Any:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


LAYOUTS: dict[str, Callable[[oracle.Inputs], dict[str, Any]]] = {
    "float8": lambda i: {
        "q": i.q.view(ml_dtypes.float8_e4m3fn),
        "k": i.k.view(ml_dtypes.float8_e4m3fn),
    },
    "float8 of rows apart": lambda i: {"k": padded(i.k).view(ml_dtypes.float8_e4m3fn)},
    "rows apart": lambda i: {"q": padded(i.q), "k": padded(i.k), "weights": padded(i.weights)},
    "every second row": lambda i: {
        "q": np.repeat(i.q, 2, 0)[::2],
        "k": np.repeat(i.k, 2, 0)[::2],
        "weights": np.repeat(i.weights, 2, 0)[::2],
    },
    "read-only": lambda i: {name: read_only(value) for name, value in vars(i).items()},
    "memoryview": lambda i: {name: memoryview(value) for name, value in vars(i).items()},
    "odd address of codes": lambda i: {
        "k": np.concatenate([np.zeros(3, np.uint8), i.k.reshape(-1)])[3:].reshape(i.k.shape)
    },
    "subclass": lambda i: {"weights": np.asmatrix(i.weights)},
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    inputs = oracle.integers(3, queries=4, heads=6, dim=32, keys=60)
    given = {**vars(inputs), **LAYOUTS[layout](inputs)}
    ids, _ = oracle.topk(inputs, 11)
    np.testing.assert_array_equal(dosa.topk(**given, topk=11).indices, ids)
    np.testing.assert_array_equal(dosa.scores(**given), dosa.scores(*inputs))


def test_strides_of_single_rows_do_not_matter() -> None:
    inputs = oracle.integers(5, queries=1, heads=1, dim=16, keys=1, plain=True)
    strided = np.lib.stride_tricks.as_strided
    given = {
        "q": strided(inputs.q, (1, 1, 16), (3, 5, 1)),
        "k": strided(inputs.k, (1, 16), (-7, 1)),
        "k_scale": strided(inputs.k_scale, (1,), (4000,)),
        "weights": strided(inputs.weights, (1, 1), (0, 0)),
    }
    assert dosa.topk(**given, topk=2).indices.tolist() == [[0, -1]]


@pytest.mark.parametrize("dtype", [np.uint8, ml_dtypes.float8_e4m3fn])
def test_codes_are_not_copied(dtype: Any) -> None:
    codes = np.zeros((9, 16), dtype)
    seen = view("k", codes, "code")
    assert isinstance(seen, np.ndarray)
    assert np.shares_memory(seen, codes)
    assert seen.ctypes.data == codes.ctypes.data


def test_the_extension_holds_the_arrays_and_lets_them_go() -> None:
    inputs = oracle.integers(7)
    arrays = list(inputs)
    before = [sys.getrefcount(array) for array in arrays]
    problem = _core.Problem(*arrays, None, None, 3, 1)
    assert all(sys.getrefcount(a) > count for a, count in zip(arrays, before, strict=True))
    del problem
    assert [sys.getrefcount(array) for array in arrays] == before
    for _ in range(3):
        with pytest.raises(dosa.ArgumentError):
            _core.Problem(*arrays[:4], arrays[4][:1], None, None, None, 3, 1)
    assert [sys.getrefcount(array) for array in arrays] == before


def test_inputs_are_not_written() -> None:
    inputs = oracle.integers(9)
    copies = [array.copy() for array in inputs]
    dosa.topk(*inputs, 10)
    dosa.verify(*inputs, 10)
    for array, copy in zip(inputs, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "uint8"])
@pytest.mark.filterwarnings("ignore")
def test_jax(dtype: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    inputs = oracle.integers(11, queries=3, heads=4, dim=16, keys=50)
    codes = {name: jnp.asarray(getattr(inputs, name).view(dtype)) for name in ("q", "k")}
    rest = {name: jnp.asarray(value) for name, value in vars(inputs).items() if name not in codes}
    found = dosa.topk(**codes, **rest, topk=8)
    assert isinstance(found.indices, np.ndarray)
    np.testing.assert_array_equal(found.indices, oracle.topk(inputs, 8)[0])
    for array in codes.values():
        seen: Any = view("k", array, "code")
        assert seen.ctypes.data == array.unsafe_buffer_pointer()
    gone = jnp.zeros((50, 16), dtype)
    gone.delete()
    with pytest.raises(dosa.ArgumentError, match=r"^k: found a deleted JAX array"):
        dosa.topk(**{**codes, **rest, "k": gone})
