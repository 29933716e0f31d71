# SPDX-License-Identifier: Apache-2.0
"""Decode steps on a CUDA device: against the prefill, the host, DeepGEMM's names; caches."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dosa
from device_inputs import NEEDED, best, bits, torch
from device_pages import D, Step, by_prefill, make

pytestmark = [NEEDED, pytest.mark.filterwarnings("default")]

LENGTHS = [5000, 1, 64, 700, 12_345]
K = 100


@pytest.fixture(scope="module", autouse=True)
def _operators() -> Iterator[None]:
    importlib.import_module("dosa.torch")
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def gemm() -> Any:
    return importlib.import_module("dosa.compat.deep_gemm")


def check(step: Step, topk: int = K, **options: Any) -> dosa.TopK[Any]:
    found: dosa.TopK[Any] = dosa.paged_topk(*step, topk, scores=True, **options)
    ids, values = by_prefill(step, topk)
    assert torch.equal(found.indices, ids)
    assert torch.equal(bits(found.scores), bits(values))
    return found


@pytest.mark.parametrize("page_size", [1, 16, 32, 64, 128])
@pytest.mark.parametrize("heads", [32, 64])
def test_a_step_is_what_a_prefill_selects(page_size: int, heads: int) -> None:
    check(make(LENGTHS, heads=heads, page_size=page_size, seed=page_size))


@pytest.mark.parametrize("next_n", [1, 2, 4, 8])
def test_several_queries(next_n: int) -> None:
    step = make(LENGTHS, next_n=next_n)
    found = check(step, 2048)
    step.lens = step.lens[:, -1].contiguous()
    assert torch.equal(dosa.paged_topk(*step, 2048).indices, found.indices)


def test_the_host_selects_the_same_where_sums_are_exact() -> None:
    step = make([3000, 17, 900], next_n=2, exact=True)
    host = dosa.paged_topk(*step.host(), K, scores=True)
    found = dosa.paged_topk(*step, K, scores=True)
    assert torch.equal(found.indices.cpu(), host.indices)
    assert torch.equal(bits(found.scores.cpu()), bits(host.scores))


def test_empty_rows() -> None:
    step = make(LENGTHS)
    step.lens[1], step.lens[3] = 0, -5
    found = dosa.paged_topk(*step, K).indices
    assert bool((found[1] == -1).all())
    assert bool((found[3] == -1).all())
    none = Step(step.q[:0], step.cache, step.weights[:0], step.lens[:0], step.table[:0])
    assert dosa.paged_topk(*none, K).indices.shape == (0, K)


def test_index_forms_and_order() -> None:
    step = make(LENGTHS)
    ids = dosa.paged_topk(*step, K).indices
    place = ids.clamp(min=0).long()
    slots = step.table.gather(1, place // 64) * 64 + place % 64
    found = dosa.paged_topk(*step, K, index_form="slot").indices
    assert torch.equal(found, torch.where(ids >= 0, slots, -1).int())
    offset = torch.arange(len(LENGTHS), dtype=torch.int32, device="cuda") * 50_000
    found = dosa.paged_topk(*step, K, index_form="offset", index_offset=offset).indices
    assert torch.equal(found, torch.where(ids >= 0, ids + offset[:, None], -1))
    found = dosa.paged_topk(*step, K, order="score", scores=True)
    expected, values = by_prefill(step, K, order="score")
    assert torch.equal(found.indices, expected)
    assert torch.equal(bits(found.scores), bits(values))


def test_witnesses_change_no_answer() -> None:
    witnesses = dosa.Witnesses(K, len(LENGTHS), device="cuda")
    indexer = dosa.Indexer()
    for seed in range(4):
        step = make(LENGTHS, seed=seed % 2)
        found = indexer.paged_topk(*step, K, witnesses=witnesses).indices
        assert torch.equal(found, dosa.paged_topk(*step, K).indices)
    assert bool(witnesses.states.any())
    witnesses.states.random_(0, 256)
    assert torch.equal(indexer.paged_topk(*step, K, witnesses=witnesses).indices, found)
    witnesses.set(0, found[4])
    host = dosa.Witnesses(K, 1)
    host.set(0, found[4].cpu().numpy())
    np.testing.assert_array_equal(witnesses.states[0].cpu().numpy(), host.states[0])
    index = torch.tensor([4, -1, 0, 0, 99], dtype=torch.int32, device="cuda")
    found = indexer.paged_topk(*step, K, witnesses=witnesses, witness_index=index).indices
    assert torch.equal(found, dosa.paged_topk(*step, K).indices)


def test_capture_and_replay_with_other_lengths() -> None:
    step = make(LENGTHS, next_n=2)
    witnesses = dosa.Witnesses(K, len(LENGTHS), device="cuda")
    call: Any = {"witnesses": witnesses, "max_context": 20_000}
    dosa.paged_topk(*step, K, **call)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = dosa.paged_topk(*step, K, **call).indices
    for fewer in (0, 3, 400, 6000):
        step.lens -= fewer
        found.fill_(-7)
        graph.replay()
        assert torch.equal(found, dosa.paged_topk(*step, K).indices)


def test_operators_compile() -> None:
    def run(states: Any, *arrays: Any) -> Any:
        return torch.ops.dosa.paged_topk(*arrays, K, states) + 1

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    states = dosa.Witnesses(K, len(LENGTHS), device="cuda").states
    for seed in range(2):
        step = make(LENGTHS, seed=seed)
        assert torch.equal(compiled(states, *step), dosa.paged_topk(*step, K).indices + 1)
    assert bool(states.any())


@pytest.mark.parametrize("next_n", [1, 2])
def test_the_names_of_deep_gemm(gemm: Any, next_n: int) -> None:
    step = make(LENGTHS, next_n=next_n)
    width = 12_800
    schedule = gemm.get_paged_mqa_logits_metadata(step.lens, 64, 132)
    assert torch.equal(schedule.cpu(), gemm.get_paged_mqa_logits_metadata(step.lens.cpu(), 64, 132))
    logits = gemm.fp8_paged_mqa_logits(*step, schedule, width)
    assert logits.shape == (len(LENGTHS) * next_n, width)
    end = step.lens.flatten()
    column = torch.arange(width, device="cuda")
    assert torch.equal(logits == -torch.inf, column >= end[:, None])
    ids, _ = best(logits, torch.zeros_like(end), end, K)
    assert torch.equal(gemm.fp8_paged_mqa_topk(*step, schedule, width, K), ids)
    newer = gemm.fp8_fp4_paged_mqa_logits(
        (step.q, None), *list(step)[1:], schedule, width, logits_dtype=torch.bfloat16
    )
    assert torch.equal(newer, logits.bfloat16())


@pytest.mark.parametrize("scale_format", ["fp32", "ue8m0"])
@pytest.mark.parametrize("page_size", [1, 64])
def test_insertion_and_gathering_are_the_hosts(scale_format: Any, page_size: int) -> None:
    made = torch.Generator("cuda").manual_seed(9)
    keys = torch.randn((150, D + 8), generator=made, device="cuda").bfloat16()[:, :D]
    keys[3], keys[4, 5] = 0, torch.inf
    pages = 256 // page_size
    cache = torch.full((pages, page_size, 1, D + 4), 7, dtype=torch.uint8, device="cuda")
    slots = torch.randperm(256, generator=made, device="cuda")[:150]
    slots[10] = -1
    host = cache.cpu()
    dosa.paged_insert(host, keys.cpu(), slots.cpu(), scale_format=scale_format)
    torch.ops.dosa.paged_insert(cache, keys, slots, scale_format=scale_format)
    assert torch.equal(cache.cpu(), host)
    table = torch.randperm(pages, generator=made, device="cuda").int().view(1, -1)
    ends = torch.tensor([0, 201], dtype=torch.int32, device="cuda")
    k, scale = torch.ops.dosa.paged_gather(cache, table, ends, 201, page_size=page_size)
    expected = dosa.paged_gather(host, table.cpu(), ends.cpu(), page_size=page_size)
    assert torch.equal(k.view(torch.uint8).cpu(), expected[0].view(torch.uint8))
    assert torch.equal(bits(scale.cpu()), bits(expected[1]))


def test_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    step = make(LENGTHS)
    expected = dosa.paged_topk(*step, K).indices
    arrays = [cupy.asarray(array.view(torch.uint8)) for array in (step.q, step.cache)]
    rest = [cupy.asarray(array) for array in (step.weights, step.lens, step.table)]
    found = dosa.paged_topk(*arrays, *rest, K).indices
    np.testing.assert_array_equal(cupy.asnumpy(found), expected.cpu().numpy())


def test_refused() -> None:
    step = make(LENGTHS)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"lens": step.lens.long()}, "context_lens: found dtype int64, expected int32"),
        ({"table": step.table.cpu()}, "block_table: found a tensor on cpu, expected one on cuda:0"),
        ({"cache": step.cache.cpu()}, "kv_cache: found a tensor on cpu, expected one on cuda:0"),
        ({"cache": step.cache[..., ::2]}, "kv_cache: found shape"),
        ({"weights": step.weights[:3]}, "weights: found shape"),
        ({"q": step.q[..., :64].contiguous()}, "kv_cache: found shape"),
    ]
    for changed, message in cases:
        given = Step(**{**step.__dict__, **changed})
        with pytest.raises(dosa.Error, match=f"^{message}"):
            dosa.paged_topk(*given, K)
    with pytest.raises(dosa.Error, match=r"^mode: found "):
        dosa.paged_topk(*step, K, mode="dosa")
    with pytest.raises(dosa.ArgumentError, match=r"^witnesses: found an array on the host, exp"):
        dosa.paged_topk(*step, K, witnesses=dosa.Witnesses(K, 5))
    out = torch.empty((5, K), dtype=torch.int32, device="cuda")
    states = dosa.Witnesses.of(out.view(torch.uint8), K)
    with pytest.raises(dosa.ArgumentError, match=r"^witnesses: found shape"):
        dosa.paged_topk(*step, K, witnesses=states, out=out)
