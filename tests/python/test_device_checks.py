# SPDX-License-Identifier: Apache-2.0
"""The extension's checks of device arrays, which read no memory and so need no device."""

from __future__ import annotations

import re
from typing import Any

import pytest

import dosa
from capsule import Claim
from dosa import _core

Q, H, D, N, K = 3, 32, 128, 40, 5
NAMES = ("q", "k", "k_scale", "weights", "k_start", "k_end", "index_offset", "page_table")
U8, F32, I32 = (1, 8), (2, 32), (0, 32)

# Their memory has to outlive the capsules.
HOST, DEVICE = Claim((Q, H, D), data=4096), Claim((Q, H, D), data=4096, device=2, host=False)

needs_engine = pytest.mark.skipif(
    not _core.HAS_DEVICE, reason="this package was built without the device engine"
)


def arrays() -> dict[str, Any]:
    return {
        "q": (4096, (Q, H, D), None, *U8, 0),
        "k": (8192 * 16, (N, D), None, *U8, 0),
        "k_scale": (1 << 20, (N,), None, *F32, 0),
        "weights": (1 << 21, (Q, H), None, *F32, 0),
        "k_start": (1 << 22, (Q,), None, *I32, 0),
        "k_end": (1 << 23, (Q,), None, *I32, 0),
        "index_offset": None,
        "page_table": None,
    }


def problem(topk: int = K, **changed: Any) -> _core.DeviceProblem:
    return _core.DeviceProblem(*{**arrays(), **changed}.values(), topk, 1)


@needs_engine
def test_shapes_and_workspace() -> None:
    made = problem()
    assert (made.num_queries, made.num_heads, made.head_dim, made.num_keys) == (Q, H, D, N)
    options = _core.Options()
    assert _core.device_workspace_bytes(made, options, False) > 0
    large = problem(
        q=(4096, (4096, H, D), None, *U8, 0),
        weights=(1 << 30, (4096, H), None, *F32, 0),
        k_start=None,
        k_end=None,
    )
    options.mode = 1
    unlimited = _core.device_workspace_bytes(large, options, False)
    options.workspace_mib = 64
    assert _core.device_workspace_bytes(large, options, False) <= unlimited


@needs_engine
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"k": (4096, (N, D), None, *U8, 1)}, "k: found device cuda:1, expected cuda:0 as of q"),
        ({"k": (4096, (N, D), None, *F32, 0)}, "k: found dtype float32, expected float8_e4m3fn"),
        ({"k": (0, (N, D), None, *U8, 0)}, "k: found no memory (freed?), expected the memory of"),
        ({"k": (4096, (N, D), (1, N), *U8, 0)}, "k: found element strides (1, 40), expected the"),
        ({"k": (4096, (N, D), (64, 1), *U8, 0)}, "k: found element strides (64, 1), expected rows"),
        ({"k_scale": (4097, (N,), None, *F32, 0)}, "k_scale: found an address that is 1 modulo 4"),
        ({"k_end": (4096, (Q, 1), None, *I32, 0)}, "k_end: found shape (3, 1), expected (Q = 3,)"),
        ({"q": HOST.__dlpack__()}, "q: found host memory, expected memory"),
        ({"q": 3}, "q: found int, expected an array whose memory"),
    ],
)
def test_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(dosa.Error, match="^" + re.escape(message)):
        problem(**changed)


@needs_engine
def test_capsules_of_devices() -> None:
    assert problem(q=DEVICE.__dlpack__()).num_queries == Q


@needs_engine
@pytest.mark.parametrize(
    ("indices", "scores", "message"),
    [
        (4096, 1 << 24, "indices: found memory that it shares with q, expected memory of its own"),
        (1 << 24, 1 << 24, "scores: found memory that it shares with indices, expected memory of"),
        (1 << 24, 1 << 25, "workspace: found memory that it shares with k, expected memory of its"),
    ],
)
def test_outputs_share_no_memory(indices: int, scores: int, message: str) -> None:
    made = problem()
    ids = (indices, (Q, K), None, *I32, 0)
    values = (scores, (Q, K), None, *F32, 0)
    workspace = (8192 * 16, (100,), None, *U8, 0)
    with pytest.raises(dosa.ArgumentError, match="^" + re.escape(message)):
        _core.device_topk(made, _core.Options(), ids, values, None, None, workspace, 0)


@needs_engine
def test_without_a_driver_or_workspace_nothing_is_enqueued() -> None:
    """The memory does not exist: a small workspace, or no device, is refused before."""
    ids = (1 << 24, (Q, K), None, *I32, 0)
    workspace = (1 << 26, (1,), None, *U8, 0)
    with pytest.raises(dosa.Error, match=r"cudaGetDevice|workspace"):
        _core.device_topk(problem(), _core.Options(), ids, None, None, None, workspace, 0)


@pytest.mark.skipif(_core.HAS_DEVICE, reason="this package was built with the device engine")
def test_a_package_without_the_engine_says_so() -> None:
    with pytest.raises(dosa.UnsupportedError, match=r"^q: found an array on a CUDA device, exp"):
        dosa.topk(DEVICE, DEVICE, DEVICE, DEVICE, topk=K)
