# SPDX-License-Identifier: Apache-2.0
"""What is refused on a device: the class, and a line with name, found and expected."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import dosa
from device_inputs import NEEDED, normal, torch

pytestmark = [NEEDED, pytest.mark.filterwarnings("default")]

Q, H, D, N, K = 8, 32, 128, 300, 16
NAMES = ("q", "k", "k_scale", "weights", "k_start", "k_end")


def refuse(error: type[Exception], message: str, **changed: Any) -> None:
    given = {**dict(zip(NAMES, normal(Q, N), strict=True)), "topk": K, **changed}
    with pytest.raises(error, match="^" + re.escape(message)) as caught:
        dosa.topk(**given)
    assert isinstance(caught.value, dosa.Error)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES[1:])
def test_arrays_elsewhere(name: str) -> None:
    tensor = normal(Q, N)[NAMES.index(name)].cpu()
    refuse(
        ValueError, f"{name}: found a tensor on cpu, expected one on cuda:0, as q", **{name: tensor}
    )
    array = np.zeros(4, np.float32)
    refuse(ValueError, f"{name}: found an array on the host, expected one on c", **{name: array})


@pytest.mark.parametrize("name", NAMES[1:])
def test_arrays_of_a_device_in_a_call_on_the_host(name: str) -> None:
    given = dict(zip(NAMES, (tensor.cpu() for tensor in normal(Q, N)), strict=True))
    given[name] = given[name].cuda()
    message = f"^{name}: found a tensor on cuda:0, expected a tensor on cpu$"
    with pytest.raises(dosa.ArgumentError, match=message):
        dosa.topk(**given, topk=K)


def test_dtypes() -> None:
    expected = "float8_e4m3fn, or uint8 holding its codes"
    for name, dtype in (("q", torch.float8_e5m2), ("k", torch.float8_e4m3fnuz), ("k", torch.int8)):
        wrong = torch.zeros((Q, H, D) if name == "q" else (N, D), device="cuda").to(dtype)
        line = f"{name}: found dtype {str(dtype)[6:]}, expected {expected}"
        refuse(TypeError, line, **{name: wrong})
    refuse(
        TypeError, "k_end: found dtype int64, expected int32", k_end=torch.zeros(Q).long().cuda()
    )


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("q", (Q, D), "q: found shape (8, 128), expected (Q, H, D)"),
        ("k", (N, 64), "k: found shape (300, 64), expected (N, D = 128)"),
        ("weights", (Q, H, 1), "weights: found shape (8, 32, 1), expected (Q = 8, H = 32)"),
        ("k_scale", (N + 1,), "k_scale: found shape (301,), expected (N = 300,)"),
        ("k_end", (Q - 1,), "k_end: found shape (7,), expected (Q = 8,)"),
    ],
)
def test_shapes(name: str, shape: tuple[int, ...], message: str) -> None:
    dtype = {"q": torch.uint8, "k": torch.uint8, "k_end": torch.int32}.get(name, torch.float32)
    refuse(ValueError, message, **{name: torch.zeros(shape, dtype=dtype, device="cuda")})


def test_strides_and_alignment() -> None:
    weights = torch.zeros((H, Q), device="cuda").T
    line = "weights: found element strides (1, 8), expected the last 1 dimension contiguous"
    refuse(ValueError, line, weights=weights)
    flat = torch.zeros(N * D + 1, dtype=torch.uint8, device="cuda")[1:].view(N, D)
    refuse(ValueError, "k: found 0x", k=flat)
    wide = torch.zeros((N, D + 8), dtype=torch.uint8, device="cuda")[:, :D]
    refuse(ValueError, "k_stride: found 136, expected a multiple of 16", k=wide)
    resized = torch.zeros((N, D), dtype=torch.uint8, device="cuda")
    resized.untyped_storage().resize_(100)
    refuse(ValueError, "k: found a storage of 100 bytes (freed or resized?)", k=resized)
    graded = torch.zeros((Q, H), device="cuda", requires_grad=True)
    refuse(ValueError, "weights: found a tensor that requires grad", weights=graded)


def test_outputs_that_share_memory() -> None:
    given = normal(Q, N)
    ids = torch.empty((Q, K), dtype=torch.int32, device="cuda")
    line = "scores: found memory that it shares with indices, expected memory of its own"
    refuse(ValueError, line, out=(ids, ids.view(torch.float32)))
    ends = torch.zeros(Q * K, dtype=torch.int32, device="cuda")
    line = "indices: found memory that it shares with k_end, expected memory of its own"
    refuse(ValueError, line, k_end=ends[:Q], out=ends.view(Q, K))
    line = "indices: found shape (8, 15), expected (Q = 8, K = 16)"
    refuse(ValueError, line, out=torch.empty((Q, K - 1), dtype=torch.int32, device="cuda"))
    refuse(TypeError, "indices: found dtype int64, expected int32", out=ids.long())
    refuse(TypeError, "out: found tuple of 3, expected an array", out=(ids, None, None))
    refuse(ValueError, "indices: found a tensor on cpu, expected one on cuda:0", out=ids.cpu())
    assert torch.equal(dosa.topk(*given, K, out=ids).indices, dosa.topk(*given, K).indices)


def test_what_the_device_does_not_have() -> None:
    unsupported = dosa.UnsupportedError
    refuse(unsupported, "statistics: found seeds, expected hard or ", statistics="seeds")
    refuse(unsupported, "progress: found a function, expected None on the device", progress=print)
    refuse(ValueError, "topk: found 4097, expected 1 to 4096", topk=4097)
    refuse(ValueError, "topk: found 0, expected 1 to 4096", topk=0)
    refuse(TypeError, "topk: found float 2.0, expected an integer", topk=2.0)
    refuse(ValueError, "index_offset: found None, expected an array", index_form="offset")
    with pytest.raises(dosa.ArgumentError, match=r"^rows: found \[0, 9\), expected a part of"):
        dosa.scores(*normal(Q, N), rows=(0, 9))


def test_calls_that_stay_on_the_host() -> None:
    """The certificate of a row is that of the host's engine."""
    with pytest.raises(dosa.ArgumentError, match=r"^q: found a tensor on cuda:0, expected a"):
        dosa.explain(*normal(Q, N)[:4], row=0)


def test_a_refused_call_changes_nothing() -> None:
    ids = torch.full((Q, K), 7, dtype=torch.int32, device="cuda")
    refuse(ValueError, "topk: found 4097", topk=4097, out=ids)
    refuse(dosa.UnsupportedError, "statistics: found", statistics="seeds", out=ids)
    assert bool((ids == 7).all())
