# SPDX-License-Identifier: Apache-2.0
"""Tensors, the operators, and the calls named as in DeepGEMM."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dosa
import oracle
from dosa._arrays import view

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("default")

Q, H, D, N, K = 6, 8, 32, 200, 17


@pytest.fixture(scope="module", autouse=True)
def _operators() -> Iterator[None]:
    importlib.import_module("dosa.torch")
    yield
    torch._dynamo.reset()


def tensors(inputs: oracle.Inputs, dtype: str = "float8_e4m3fn") -> list[Any]:
    made = [torch.from_numpy(array) for array in inputs]
    return [made[0].view(getattr(torch, dtype)), made[1].view(getattr(torch, dtype)), *made[2:]]


@pytest.fixture
def inputs() -> oracle.Inputs:
    return oracle.integers(21, Q, H, D, N)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "uint8"])
def test_tensors_in_tensors_out(inputs: oracle.Inputs, dtype: str) -> None:
    found = dosa.topk(*tensors(inputs, dtype), K, scores=True)
    ids, values = oracle.topk(inputs, K)
    assert isinstance(found.indices, torch.Tensor)
    assert found.indices.dtype == torch.int32
    np.testing.assert_array_equal(found.indices.numpy(), ids)
    np.testing.assert_array_equal(found.scores.numpy(), values)
    scores = dosa.scores(*tensors(inputs, dtype))
    np.testing.assert_array_equal(scores.numpy(), dosa.scores(*inputs))
    assert dosa.verify(*tensors(inputs, dtype), K).violations == 0


def test_tensors_are_not_copied(inputs: oracle.Inputs) -> None:
    for name, tensor in zip(("q", "k"), tensors(inputs), strict=False):
        seen: Any = view(name, tensor, "code")
        assert seen.data_ptr() == tensor.data_ptr()


def test_strided_tensors(inputs: oracle.Inputs) -> None:
    q, k, *rest = tensors(inputs)
    wide = torch.zeros((N, D + 4), dtype=torch.uint8)
    wide[:, :D] = k.view(torch.uint8)
    found = dosa.topk(q, wide[:, :D].view(torch.float8_e4m3fn), *rest, K)
    np.testing.assert_array_equal(found.indices.numpy(), oracle.topk(inputs, K)[0])


def _resized(inputs: oracle.Inputs) -> Any:
    k = torch.from_numpy(inputs.k.copy()).clone()
    k.untyped_storage().resize_(100)
    return k


REFUSED = {
    "float8_e5m2": ("k", lambda i: torch.zeros(N, D).to(torch.float8_e5m2), TypeError),
    "float8_e4m3fnuz": ("k", lambda i: torch.zeros(N, D).to(torch.float8_e4m3fnuz), TypeError),
    "int8": ("q", lambda i: torch.zeros((Q, H, D), dtype=torch.int8), TypeError),
    "float16": ("q", lambda i: torch.zeros((Q, H, D), dtype=torch.float16), TypeError),
    "bfloat16": ("weights", lambda i: torch.zeros((Q, H), dtype=torch.bfloat16), TypeError),
    "int64": ("k_end", lambda i: torch.zeros(Q, dtype=torch.int64), TypeError),
    "a tensor on meta": ("k", lambda i: torch.zeros((N, D), device="meta"), ValueError),
    "a tensor that requires grad": (
        "weights",
        lambda i: torch.zeros((Q, H), requires_grad=True),
        ValueError,
    ),
    "a torch.sparse_coo tensor": ("weights", lambda i: torch.zeros(Q, H).to_sparse(), ValueError),
    "a lazily negated view": ("weights", lambda i: torch._neg_view(torch.zeros(Q, H)), ValueError),
    "a storage of 100 bytes": ("k", _resized, ValueError),
    "element strides": ("weights", lambda i: torch.zeros(H, Q).T, ValueError),
    "shape": ("k_scale", lambda i: torch.zeros(N, 1), ValueError),
}


@pytest.mark.parametrize("found", REFUSED)
def test_refused(found: str, inputs: oracle.Inputs) -> None:
    name, make, error = REFUSED[found]
    names = ("q", "k", "k_scale", "weights", "k_start", "k_end")
    given = dict(zip(names, tensors(inputs), strict=True))
    given[name] = make(inputs)
    with pytest.raises(error, match=rf"^{name}: found (dtype )?{found}.*, expected ") as caught:
        dosa.topk(**given, topk=K)
    assert isinstance(caught.value, dosa.Error)


def test_libraries_may_be_mixed(inputs: oracle.Inputs) -> None:
    found = dosa.topk(tensors(inputs)[0], *list(inputs)[1:], K)
    assert isinstance(found.indices, torch.Tensor)
    found = dosa.topk(inputs.q, *tensors(inputs)[1:], K)
    assert isinstance(found.indices, np.ndarray)


def test_operators(inputs: oracle.Inputs) -> None:
    ids, values = oracle.topk(inputs, K)
    given = tensors(inputs)
    np.testing.assert_array_equal(torch.ops.dosa.topk(*given, K).numpy(), ids)
    found = torch.ops.dosa.topk_with_scores(*given, K, mode="dosa", threads=1)
    np.testing.assert_array_equal(found[0].numpy(), ids)
    np.testing.assert_array_equal(found[1].numpy(), values)
    np.testing.assert_array_equal(torch.ops.dosa.scores(*given).numpy(), dosa.scores(*inputs))
    by_score = torch.ops.dosa.topk(*given, K, order="score", forced_last=2)
    expected = oracle.topk(inputs, K, order="score", forced_last=2)[0]
    np.testing.assert_array_equal(by_score.numpy(), expected)
    offset = torch.arange(Q, dtype=torch.int32)
    form = {"index_form": "offset", "index_offset": offset}
    here = dosa.topk(*given, K, **form).indices
    assert torch.equal(torch.ops.dosa.topk(*given, K, **form), here)


@pytest.mark.parametrize("name", ["topk", "topk_with_scores", "scores"])
def test_operators_are_what_they_say(name: str) -> None:
    """Schema, fake tensors, autograd registration, tracing; by torch's own checks."""
    inputs = oracle.integers(23, Q, H, D, N, plain=True)  # no NaN, which equals nothing there
    arguments = tensors(inputs, "uint8") + ([K] if name != "scores" else [])
    result = torch.library.opcheck(getattr(torch.ops.dosa, name).default, arguments)
    assert set(result.values()) == {"SUCCESS"}


def test_operators_on_meta_tensors() -> None:
    meta = {"device": "meta"}
    q = torch.empty((5, 3, 16), dtype=torch.float8_e4m3fn, **meta)
    k = torch.empty((50, 16), dtype=torch.float8_e4m3fn, **meta)
    rest = (torch.empty(50, **meta), torch.empty((5, 3), **meta))
    ids, values = torch.ops.dosa.topk_with_scores(q, k, *rest, topk=9)
    assert (ids.shape, ids.dtype, ids.device.type) == ((5, 9), torch.int32, "meta")
    assert (values.shape, values.dtype) == ((5, 9), torch.float32)
    assert torch.ops.dosa.scores(q, k, *rest).shape == (5, 50)
    with pytest.raises(dosa.ArgumentError, match=r"^k: found 3 dimensions, expected 2$"):
        torch.ops.dosa.topk(q, q, *rest, topk=9)


def test_compile_without_a_break(inputs: oracle.Inputs) -> None:
    def select(*arguments: Any) -> Any:
        return torch.ops.dosa.topk(*arguments, K) + 1

    compiled = torch.compile(select, fullgraph=True, backend="aot_eager", dynamic=True)
    for seed, queries in ((1, 3), (2, 7)):
        given = tensors(oracle.integers(seed, queries, H, D, N))
        assert torch.equal(compiled(*given), select(*given))


def test_operators_have_no_derivative(inputs: oracle.Inputs) -> None:
    given = tensors(inputs)
    given[3].requires_grad_()
    assert not torch.ops.dosa.topk(*given, K).requires_grad
    with pytest.raises(RuntimeError, match="expected none: no derivative"):
        torch.ops.dosa.scores(*given).nan_to_num(0, 0, 0).sum().backward()


def test_save_takes_tensors(tmp_path: Any, inputs: oracle.Inputs) -> None:
    q, k, *_ = tensors(inputs)
    dosa.save(tmp_path / "a", {"q": q, "k": k.view(torch.uint8), "h": torch.ones(2).bfloat16()})
    loaded = dosa.load_tensors(tmp_path / "a")
    assert loaded.dtypes == {"q": "F8_E4M3", "k": "U8", "h": "BF16"}
    np.testing.assert_array_equal(loaded["q"], inputs.q)


class TestDeepGemm:
    """Signatures: DeepGEMM's csrc/apis/attention.hpp and tests/test_attention.py, June 2026."""

    def call(self, inputs: oracle.Inputs) -> tuple[Any, ...]:
        q, k, k_scale, weights, start, end = tensors(inputs)
        return q, (k, k_scale), weights, start, end

    def test_logits(self, inputs: oracle.Inputs) -> None:
        gemm = importlib.import_module("dosa.compat.deep_gemm")
        expected = dosa.scores(*inputs)
        for clean in (True, False):
            logits = gemm.fp8_mqa_logits(*self.call(inputs), clean_logits=clean)
            np.testing.assert_array_equal(logits.numpy(), expected)

    @pytest.mark.parametrize("width", [N, N + 31])
    def test_compressed_logits(self, inputs: oracle.Inputs, width: int) -> None:
        gemm = importlib.import_module("dosa.compat.deep_gemm")
        expected = dosa.scores(*inputs)
        found = gemm.fp8_mqa_logits(
            *self.call(inputs), clean_logits=False, max_seqlen_k=width
        ).numpy()
        assert found.shape == (Q, width)
        for row in range(Q):
            start, end = np.clip((inputs.k_start[row], inputs.k_end[row]), 0, N)
            length = max(end - start, 0)
            np.testing.assert_array_equal(
                found[row, :length], expected[row, start : start + length]
            )
            assert np.all(found[row, length:] == -np.inf)

    @pytest.mark.parametrize("kept", [1, 17, 300])
    def test_topk(self, inputs: oracle.Inputs, kept: int) -> None:
        gemm = importlib.import_module("dosa.compat.deep_gemm")
        ids, _ = oracle.topk(inputs, kept)
        found = gemm.fp8_mqa_topk(*self.call(inputs), kept).numpy()
        np.testing.assert_array_equal(found, ids)
        relative = gemm.fp8_mqa_topk(*self.call(inputs), kept, index_form="relative").numpy()
        start = np.clip(inputs.k_start, 0, N)[:, None]
        np.testing.assert_array_equal(relative, np.where(ids >= 0, ids - start, -1))

    @pytest.mark.parametrize("disable_cp", [True, False])
    def test_windows_of_their_tests(self, disable_cp: bool) -> None:
        """Causal rows, and rows as two ranks of a context-parallel group hold them."""
        gemm = importlib.import_module("dosa.compat.deep_gemm")
        rows, keys = 64, 512
        inputs = oracle.integers(31, rows, 32, 128, keys, plain=True)
        if disable_cp:
            inputs.k_end[:] = np.arange(rows) + keys - rows
        else:
            chunk, size = rows // 2, keys // rows
            rank = size // 3
            inputs.k_end[:chunk] = rank * chunk + np.arange(chunk)
            inputs.k_end[chunk:] = (2 * size - 1 - rank) * chunk + np.arange(chunk)
        logits = gemm.fp8_mqa_logits(*self.call(inputs))
        order = torch.argsort(logits, dim=1, descending=True, stable=True)[:, :40].sort(1).values
        ids = gemm.fp8_mqa_topk(*self.call(inputs), 40)
        full = torch.from_numpy(inputs.k_end) >= 40
        assert torch.equal(ids[full].long(), order[full])
        np.testing.assert_array_equal(ids.numpy(), oracle.topk(inputs, 40)[0])

    def test_refused(self, inputs: oracle.Inputs) -> None:
        gemm = importlib.import_module("dosa.compat.deep_gemm")
        q, kv, weights, start, end = self.call(inputs)
        end = torch.full_like(end, N)
        start = torch.zeros_like(start)
        cases: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
            ((q, kv[0], weights, start, end), {}, "kv: found Tensor, expected a pair"),
            ((q, (*kv, None), weights, start, end), {}, "kv: found tuple of 3, expected a pair"),
            ((q, kv, weights, None, end), {}, "cu_seq_len_k_start: found None, expected an"),
            ((q, kv, weights, start, None), {}, "cu_seq_len_k_end: found None, expected an"),
            ((q, kv, weights, start, end), {"max_seqlen_k": 9}, "clean_logits: found True, exp"),
            ((q, kv, weights, start, end), {"max_seqlen_k": -1}, "max_seqlen_k: found -1, exp"),
            (
                (q, kv, weights, start, end),
                {"max_seqlen_k": 199, "clean_logits": False},
                "max_seqlen_k: found 199, and a window of 200 keys in row 0, expected no longer",
            ),
            ((q.to(torch.bfloat16), kv, weights, start, end), {}, "q: found dtype bfloat16"),
        ]
        for arguments, options, message in cases:
            with pytest.raises(dosa.Error, match=f"^{message}"):
                gemm.fp8_mqa_logits(*arguments, **options)
