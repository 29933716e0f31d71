# SPDX-License-Identifier: Apache-2.0
"""The operators on paged caches, on the host."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dosa
from test_decode import DIM, draw, expected, step

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("default")

SIZES = (130, 1, 300, 64)
K = 20


@pytest.fixture(scope="module", autouse=True)
def _operators() -> Iterator[None]:
    importlib.import_module("dosa.torch")
    yield
    torch._dynamo.reset()


def tensors(seed: int) -> tuple[list[Any], Any]:
    """The arrays of a step, and the ids that it selects."""
    requests = draw(seed, SIZES)
    return [torch.from_numpy(array) for array in step(requests)], expected(requests, K)[0]


def test_step() -> None:
    arrays, ids = tensors(3)
    np.testing.assert_array_equal(torch.ops.dosa.paged_topk(*arrays, K).numpy(), ids)
    witnesses = dosa.Witnesses(K, len(SIZES), device="cpu")
    for _ in range(2):
        found = torch.ops.dosa.paged_topk(*arrays, K, witnesses.states)
        np.testing.assert_array_equal(found.numpy(), ids)
    assert bool(witnesses.states.any())
    meta = [array.to("meta") for array in arrays]
    assert torch.ops.dosa.paged_topk(*meta, K).shape == (8, K)
    with pytest.raises(dosa.ArgumentError, match=r"^q: found 3 dimensions, expected 4$"):
        torch.ops.dosa.paged_topk(meta[0][0], *meta[1:], K)


def test_compile_without_a_break() -> None:
    def run(witnesses: Any, *arrays: Any) -> Any:
        return torch.ops.dosa.paged_topk(*arrays, K, witnesses) + 1

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    states = dosa.Witnesses(K, len(SIZES), device="cpu").states
    for seed in (4, 4, 4):
        arrays, ids = tensors(seed)
        np.testing.assert_array_equal(compiled(states, *arrays).numpy(), ids + 1)
    assert bool(states.any()), "the compiled step did not remember its winners"


def test_cache_in_and_out() -> None:
    made = torch.Generator().manual_seed(5)
    keys = torch.randn((70, DIM), generator=made).bfloat16()
    cache = torch.zeros((3, 64, 1, DIM + 4), dtype=torch.uint8)
    slots = torch.randperm(3 * 64, generator=made)[:70]
    by_function = cache.clone()
    dosa.paged_insert(by_function, keys, slots, scale_format="ue8m0")

    def fill(cache: Any) -> None:
        torch.ops.dosa.paged_insert(cache, keys, slots, scale_format="ue8m0")

    torch.compile(fill, fullgraph=True, backend="aot_eager")(cache)
    assert torch.equal(cache, by_function)
    assert bool(cache.any())
    table, ends = torch.tensor([[2, 0, 1]]).int(), torch.tensor([0, 150]).int()
    k, k_scale = torch.ops.dosa.paged_gather(cache, table, ends, 150, head_dim=DIM)
    other, other_scale = dosa.paged_gather(cache, table, ends, head_dim=DIM)
    assert k.dtype == torch.float8_e4m3fn
    assert torch.equal(k.view(torch.uint8), other.view(torch.uint8))
    assert torch.equal(k_scale, other_scale)


@pytest.mark.parametrize("name", ["paged_topk", "paged_insert", "paged_gather"])
def test_operators_are_what_they_say(name: str) -> None:
    """Schema, mutation, fake tensors, tracing; by torch's own checks."""
    arrays, _ = tensors(6)
    cache = torch.zeros((3, 64, 1, DIM + 4), dtype=torch.uint8)
    arguments: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "paged_topk": ((*arrays, K, dosa.Witnesses(K, 4, device="cpu").states), {}),
        "paged_insert": ((cache, torch.ones((5, DIM)).bfloat16(), torch.arange(5)), {}),
        "paged_gather": (
            (cache, torch.tensor([[2, 0]]).int(), torch.tensor([0, 90]).int(), 90),
            {"head_dim": DIM},
        ),
    }
    given, named = arguments[name]
    result = torch.library.opcheck(getattr(torch.ops.dosa, name).default, given, named)
    assert set(result.values()) == {"SUCCESS"}


def test_outputs_of_the_caller_and_states_that_exist() -> None:
    arrays, ids = tensors(7)
    out = torch.empty((8, K), dtype=torch.int32)
    found = dosa.paged_topk(*arrays, K, out=out)
    assert found.indices is out
    np.testing.assert_array_equal(out.numpy(), ids)
    states = np.zeros((4, dosa.Witnesses(K, 0).states.shape[1]), np.uint8)
    dosa.paged_topk(*arrays, K, witnesses=dosa.Witnesses.of(states, K))
    assert states.any()
    line = r"^indices: found memory that it shares with context_lens, expected memory of its own$"
    lens = torch.zeros(8 * K, dtype=torch.int32)
    with pytest.raises(dosa.ArgumentError, match=line):
        dosa.paged_topk(*arrays[:3], lens[:8].view(4, 2), arrays[4], K, out=lens.view(8, K))
