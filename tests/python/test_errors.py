# SPDX-License-Identifier: Apache-2.0
"""Everything that is refused: the class, and a message with name, found and expected."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dosa
import oracle
from capsule import Claim

Q, H, D, N = 3, 4, 32, 40
Arguments = dict[str, Any]


def arguments() -> Arguments:
    inputs = oracle.integers(0, Q, H, D, N)
    names = ("q", "k", "k_scale", "weights", "k_start", "k_end")
    return {**dict(zip(names, inputs, strict=True)), "topk": 5}


def refuse(changed: Arguments, error: type[dosa.Error], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        dosa.topk(**{**arguments(), **changed})
    assert isinstance(caught.value, dosa.Error)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["q", "k"])
@pytest.mark.parametrize(
    "dtype",
    [
        np.int8,
        np.float16,
        np.float32,
        np.bool_,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2fnuz,
        ml_dtypes.float8_e4m3b11fnuz,
        ml_dtypes.float8_e4m3,
        ml_dtypes.bfloat16,
    ],
    ids=lambda dtype: np.dtype(dtype).name,
)
def test_dtype_of_codes(name: str, dtype: Any) -> None:
    wrong = np.zeros(arguments()[name].shape, dtype)
    message = rf"^{name}: found dtype {wrong.dtype}, expected float8_e4m3fn, or uint8"
    refuse({name: wrong}, dosa.ArgumentTypeError, message)
    with pytest.raises(TypeError):
        dosa.topk(**{**arguments(), name: wrong})


@pytest.mark.parametrize("name", ["k_scale", "weights"])
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", ">f4", "complex64", "O", "S4"])
def test_dtype_of_floats(name: str, dtype: str) -> None:
    wrong = np.zeros(arguments()[name].shape, dtype)
    message = rf"^{name}: found dtype {re.escape(str(wrong.dtype))}, expected float32$"
    refuse({name: wrong}, dosa.ArgumentTypeError, message)


@pytest.mark.parametrize("name", ["k_start", "k_end"])
@pytest.mark.parametrize("dtype", ["int64", "uint32", "int16", ">i4", "float32"])
def test_dtype_of_windows(name: str, dtype: str) -> None:
    wrong = np.zeros(Q, dtype)
    message = rf"^{name}: found dtype {wrong.dtype}, expected int32$"
    refuse({name: wrong}, dosa.ArgumentTypeError, message)


@pytest.mark.parametrize("dtype", ["int8", "int64", "float64", "uint16", "bool"])
def test_dtype_through_the_buffer_protocol_alone(dtype: str) -> None:
    """Other exporters than NumPy reach the checks of the extension."""
    view = memoryview(np.zeros((N, D), dtype))
    refuse({"k": view}, dosa.ArgumentTypeError, rf"^k: found dtype {dtype}, expected float8_e4m3fn")


@pytest.mark.parametrize("name", ["q", "k", "k_scale", "weights"])
@pytest.mark.parametrize("value", [None, 3, 2.5, [[1.0]], "text", object(), np])
def test_no_array(name: str, value: object) -> None:
    found = re.escape(type(value).__qualname__)
    message = rf"^{name}: found {found}, expected an array whose memory DLPack or the buffer"
    refuse({name: value}, dosa.ArgumentTypeError, message)


def test_no_window_array() -> None:
    refuse({"k_end": 7}, dosa.ArgumentTypeError, "^k_end: found int, expected an array")
    refuse({"k_start": [0, 0, 0]}, dosa.ArgumentTypeError, "^k_start: found list, expected an")


def test_masked_array() -> None:
    masked = np.ma.masked_array(arguments()["k_scale"])
    message = "^k_scale: found a masked array, expected a plain array$"
    refuse({"k_scale": masked}, dosa.ArgumentTypeError, message)


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("q", (Q, H * D), "(Q, H, D)"),
        ("q", (Q, H, D, 1), "(Q, H, D)"),
        ("q", (), "(Q, H, D)"),
        ("k", (N,), "(N, D = 32)"),
        ("k", (N, D + 1), "(N, D = 32)"),
        ("k", (N, D, 1), "(N, D = 32)"),
        ("k_scale", (N - 1,), "(N = 40,)"),
        ("k_scale", (N, 1), "(N = 40,)"),
        ("weights", (Q,), "(Q = 3, H = 4)"),
        ("weights", (Q, H, 1), "(Q = 3, H = 4)"),
        ("weights", (H, Q), "(Q = 3, H = 4)"),
        ("weights", (Q + 1, H), "(Q = 3, H = 4)"),
        ("k_start", (Q + 1,), "(Q = 3,)"),
        ("k_start", (), "(Q = 3,)"),
        ("k_end", (1,), "(Q = 3,)"),
        ("k_end", (Q, 1), "(Q = 3,)"),
    ],
)
def test_shape(name: str, shape: tuple[int, ...], expected: str) -> None:
    wrong = np.zeros(shape, arguments()[name].dtype)
    message = rf"^{name}: found shape {re.escape(str(shape))}, expected {re.escape(expected)}$"
    refuse({name: wrong}, dosa.ArgumentError, message)
    with pytest.raises(ValueError, match=name):
        dosa.topk(**{**arguments(), name: wrong})


@pytest.mark.parametrize(
    ("heads", "dim", "message"),
    [
        (0, 16, "num_heads: found 0, expected 1 to 128"),
        (129, 16, "num_heads: found 129, expected 1 to 128"),
        (2, 0, "head_dim: found 0, expected 16 to 256"),
        (2, 24, "head_dim: found 24, expected a multiple of 16"),
        (2, 272, "head_dim: found 272, expected 16 to 256"),
    ],
)
def test_extents(heads: int, dim: int, message: str) -> None:
    with pytest.raises(dosa.ArgumentError, match=f"^{message}$"):
        dosa.topk(*oracle.integers(0, 2, heads, dim, 4), 3)


STRIDED: dict[str, tuple[Callable[[Arguments], Any], str]] = {
    "q": (lambda a: np.swapaxes(np.zeros((Q, D, H), np.uint8), 1, 2), "the last 2 dimensions"),
    "k": (lambda a: np.zeros((N, 2 * D), np.uint8)[:, ::2], "the last 1 dimension contiguous"),
    "k_scale": (lambda a: np.zeros(2 * N, np.float32)[::2], "a contiguous array"),
    "weights": (lambda a: np.zeros((H, Q), np.float32).T, "the last 1 dimension contiguous"),
    "k_start": (lambda a: np.zeros((Q, 2), np.int32)[:, 0], "a contiguous array"),
    "k_end": (lambda a: a["k_end"][::-1], "a contiguous array"),
}


@pytest.mark.parametrize("name", STRIDED)
def test_strides_inside_rows(name: str) -> None:
    make, expected = STRIDED[name]
    message = rf"^{name}: found element strides \(.*\), expected {expected}"
    refuse({name: make(arguments())}, dosa.ArgumentError, message)


@pytest.mark.parametrize(
    "rows",
    [
        lambda k: np.broadcast_to(k[0], k.shape),
        lambda k: np.lib.stride_tricks.as_strided(k, k.shape, (D // 2, 1)),
        lambda k: k[::-1],
    ],
    ids=["broadcast", "overlapping", "reversed"],
)
def test_rows_that_overlap_or_go_back(rows: Callable[[Any], Any]) -> None:
    message = rf"^k: found element strides \(-?\d+, 1\), expected rows at least {D} elements apart"
    refuse({"k": rows(arguments()["k"])}, dosa.ArgumentError, message)


def test_strides_of_no_whole_elements() -> None:
    records = np.zeros(N, np.dtype([("a", "u1"), ("scale", "<f4")]))
    message = r"^k_scale: found byte strides \(5,\), expected multiples of the item size 4$"
    refuse({"k_scale": records["scale"]}, dosa.ArgumentError, message)


def test_misaligned_elements() -> None:
    raw = np.zeros(4 * N + 1, np.uint8)
    message = "^k_scale: found an address that is 1 modulo 4, expected aligned elements$"
    refuse({"k_scale": raw[1:].view(np.float32)}, dosa.ArgumentError, message)


@pytest.mark.parametrize("host", [True, False])
@pytest.mark.parametrize(
    ("device", "found"),
    [
        (2, "a CUDA device"),
        (10, "a ROCm device"),
        (13, "CUDA managed memory"),
        (8, "device type 8 of DLPack"),
    ],
)
def test_memory_that_the_host_cannot_reach(device: int, found: str, host: bool) -> None:
    claim = Claim((N, D), data=4096, device=device, host=host)
    refuse(
        {"k": claim}, dosa.ArgumentError, rf"^k: found {found}, expected host memory \(device cpu"
    )


@pytest.mark.parametrize(
    ("code", "bits", "lanes", "found"),
    [
        (0, 8, 1, "int8"),
        (2, 16, 1, "float16"),
        (4, 16, 1, "bfloat16"),
        (6, 8, 1, "bool"),
        (7, 8, 1, "float8_e3m4"),
        (8, 8, 1, "float8_e4m3"),
        (9, 8, 1, "float8_e4m3b11fnuz"),
        (11, 8, 1, "float8_e4m3fnuz"),
        (12, 8, 1, "float8_e5m2"),
        (13, 8, 1, "float8_e5m2fnuz"),
        (14, 8, 1, "float8_e8m0fnu"),
        (17, 4, 1, "DLPack type code 17"),
        (255, 8, 1, "DLPack type code 255"),
        (1, 8, 4, "uint8x4"),
        (1, 16, 1, "uint16"),
    ],
)
def test_dtype_through_dlpack_alone(code: int, bits: int, lanes: int, found: str) -> None:
    claim = Claim((N, D), data=4096, code=code, bits=bits, lanes=lanes)
    message = rf"^k: found dtype {found}, expected float8_e4m3fn, or uint8 holding its codes$"
    refuse({"k": claim}, dosa.ArgumentTypeError, message)


def test_no_memory_where_there_should_be_some() -> None:
    message = r"^k: found no memory \(freed\?\), expected the memory of \(40, 32\)$"
    refuse({"k": Claim((N, D), data=0)}, dosa.ArgumentError, message)


@pytest.mark.parametrize("shape", [(-1, D), (2**31, D), (2**62, D), (N, 2**62), (-(2**63), -1)])
def test_absurd_extents(shape: tuple[int, int]) -> None:
    refuse({"k": Claim(shape, data=4096)}, dosa.ArgumentError, "^k: found shape .* expected ")


@pytest.mark.parametrize("code", [1, 10])
def test_dlpack_alone_with_offset_and_without_strides(code: int) -> None:
    given = arguments()
    expected = dosa.topk(**given).indices
    memory = np.concatenate([np.zeros(7, np.uint8), given["k"].reshape(-1)])
    given["k"] = Claim((N, D), data=memory.ctypes.data, code=code, offset=7)
    np.testing.assert_array_equal(dosa.topk(**given).indices, expected)


def test_freed_memory() -> None:
    view = memoryview(bytearray(N * D)).cast("B", (N, D))
    assert dosa.topk(**{**arguments(), "k": view}).indices.shape == (Q, 5)
    view.release()
    message = "^k: found memoryview, expected an array whose memory"
    refuse({"k": view}, dosa.ArgumentTypeError, message)


def test_an_array_that_nobody_else_holds_lives_through_the_call() -> None:
    given = arguments()
    expected = dosa.topk(**given).indices
    for _ in range(20):
        gc.collect()
        copies = {name: np.array(v) if name != "topk" else v for name, v in given.items()}
        np.testing.assert_array_equal(dosa.topk(**copies).indices, expected)


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("topk", 0, ValueError, "topk: found 0, expected 1 to 8192"),
        ("topk", -1, ValueError, "topk: found -1, expected 1 to 8192"),
        ("topk", 8193, ValueError, "topk: found 8193, expected 1 to 8192"),
        ("topk", 2**40, ValueError, f"topk: found {2**40}, expected "),
        ("topk", 2**70, ValueError, f"topk: found {2**70}, expected "),
        ("topk", 2.0, TypeError, "topk: found float 2.0, expected an integer"),
        ("topk", True, TypeError, "topk: found bool True, expected an integer"),
        ("topk", None, TypeError, "topk: found NoneType None, expected an integer"),
        ("mode", "fast", ValueError, "mode: found 'fast', expected one of auto, base, full, scr"),
        ("mode", 1, TypeError, "mode: found int 1, expected one of auto"),
        ("mode", None, TypeError, "mode: found NoneType None, expected one of auto"),
        ("threshold", "x", ValueError, "threshold: found 'x', expected one of rising, fixed"),
        ("order", "x", ValueError, "order: found 'x', expected one of id, score"),
        ("index_form", "x", ValueError, "index_form: found 'x', expected one of absolute"),
        ("retain", "x", ValueError, "retain: found 'x', expected one of uncertainty, strength"),
        ("allowance", "x", ValueError, "allowance: found 'x', expected one of best, triangle"),
        ("aggregate", "x", ValueError, "aggregate: found 'x', expected one of support, two"),
        ("statistics", "x", ValueError, "statistics: found 'x', expected one of hard, random"),
        ("heads", -1, ValueError, "heads: found -1, expected 0 to 128"),
        ("heads", 129, ValueError, "heads: found 129, expected 0 to 128"),
        ("threads", -1, ValueError, "threads: found -1, expected 0 to"),
        ("threads", 2**31, ValueError, f"threads: found {2**31}, expected "),
        ("forced_first", -1, ValueError, "forced_first: found -1, expected 0 to"),
        ("forced_last", -1, ValueError, "forced_last: found -1, expected 0 to"),
        ("allowance_groups", 3, ValueError, "allowance_groups: found 3, expected 2, 4 or 8"),
        ("projection", 1, TypeError, "projection: found int 1, expected True or False"),
        ("workspace_mib", 15, ValueError, "workspace_mib: found 15, expected 16 to"),
        ("workspace_mib", "64", TypeError, "workspace_mib: found str '64', expected an integer"),
        ("progress", 3, TypeError, "progress: found int, expected a function or None"),
        ("colour", "red", TypeError, "options: found 'colour', expected some of aggregate"),
    ],
)
def test_options(name: str, value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match="^" + re.escape(message)) as caught:
        dosa.topk(**{**arguments(), name: value})
    assert isinstance(caught.value, dosa.Error)


def test_workspace_limit_names_the_argument() -> None:
    rows = 2**27  # what is kept per group of rows alone is over the limit
    q, k = np.zeros((rows, 1, 16), np.uint8), np.zeros((1, 16), np.uint8)
    k_scale, weights = np.ones(1, np.float32), np.zeros((rows, 1), np.float32)
    message = r"^workspace_mib: found 16777216 bytes, expected at least \d+ for this shape$"
    with pytest.raises(dosa.ArgumentError, match=message):
        dosa.scores(q, k, k_scale, weights, rows=(0, 0), workspace_mib=16)


FORMS = [
    ({"index_form": "offset"}, "index_offset: found None, expected an array, as index_form"),
    ({"index_form": "slot"}, "page_table: found None, expected an array, as index_form is 'slot'"),
    ({"index_offset": np.zeros(Q, np.int32)}, "index_offset: found an array, expected None unl"),
    ({"page_table": np.zeros(Q, np.int32)}, "page_table: found an array, expected None unless"),
    (
        {"index_form": "offset", "index_offset": np.zeros(Q + 1, np.int32)},
        "index_offset: found shape (4,), expected (Q = 3,)",
    ),
    (
        {"index_form": "slot", "page_table": np.zeros((Q + 1, 9), np.int32), "page_size": 8},
        "page_table: found shape (4, 9), expected (Q = 3, pages)",
    ),
    (
        {"index_form": "slot", "page_table": np.zeros((1, Q, 9), np.int32)},
        "page_table: found shape (1, 3, 9), expected (Q = 3, pages)",
    ),
    (
        {"index_form": "slot", "page_table": np.zeros((Q, 9, 2), np.int32)[:, :, 0]},
        "page_table: found element strides (18, 2), expected the last 1 dimension contiguous",
    ),
    (
        {"index_form": "slot", "page_table": np.zeros(100, np.int32), "page_size": 0},
        "page_size: found 0, expected 1 to",
    ),
]


@pytest.mark.parametrize(("changed", "message"), FORMS)
def test_index_forms(changed: Arguments, message: str) -> None:
    refuse(changed, dosa.ArgumentError, "^" + re.escape(message))


def test_a_page_table_that_is_too_short() -> None:
    given = {**arguments(), "k_start": np.zeros(Q, np.int32), "k_end": np.full(Q, N, np.int32)}
    short = {"index_form": "slot", "page_table": np.zeros((Q, 4), np.int32), "page_size": 8}
    message = r"^page_table_pages: found 4, expected at least 5 \(row 0\)$"
    with pytest.raises(dosa.ArgumentError, match=message):
        dosa.topk(**given, **short)


@pytest.mark.parametrize("rows", [(-1, 2), (0, Q + 1), (2, 1)])
def test_rows_of_scores(rows: tuple[int, int]) -> None:
    given = arguments()
    del given["topk"]
    message = rf"^rows: found \[{rows[0]}, {rows[1]}\), expected a part of \[0, {Q}\)$"
    with pytest.raises(dosa.ArgumentError, match=message):
        dosa.scores(**given, rows=rows)


@pytest.mark.parametrize("row", [-1, Q])
def test_row_of_explain(row: int) -> None:
    with pytest.raises(dosa.ArgumentError, match=f"^row: found {row}, expected 0 to {Q - 1}$"):
        dosa.explain(**arguments(), row=row)


def test_explain_wants_a_mode_that_screens() -> None:
    with pytest.raises(dosa.ArgumentError, match=r"^mode: found 1, expected a mode that screens$"):
        dosa.explain(**arguments(), row=0, mode="base")


def test_an_indexer_refuses_options_when_it_is_made() -> None:
    with pytest.raises(dosa.ArgumentError, match=r"^order: found 'x'"):
        dosa.Indexer(order="x")


def test_results_too_large_for_memory() -> None:
    """4 TiB of ids: an exception, as for any other array."""
    q = np.lib.stride_tricks.as_strided(np.zeros(16, np.uint8), (2**27, 1, 16), (16, 16, 1))
    weights = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (2**27, 1), (4, 4))
    k = np.zeros((1, 16), np.uint8)
    with pytest.raises(MemoryError):
        dosa.topk(q, k, np.ones(1, np.float32), weights, topk=8192)


def test_exceptions_are_one_family() -> None:
    for error in (dosa.ArgumentError, dosa.ArgumentTypeError, dosa.FileError):
        assert issubclass(error, dosa.Error)
    for error in (dosa.UnsupportedError, dosa.InternalError, dosa.CertificateError):
        assert issubclass(error, dosa.Error)
    assert issubclass(dosa.ArgumentError, ValueError)
    assert issubclass(dosa.ArgumentTypeError, TypeError)
