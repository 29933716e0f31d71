# SPDX-License-Identifier: Apache-2.0
"""The decode steps of vLLM and SGLang on CUDA tensors: modules of their names, our selection."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import dosa
from device_inputs import NEEDED, torch
from device_pages import Step, make
from dosa.integrations import _pending, sglang, vllm

pytestmark = [NEEDED, pytest.mark.filterwarnings("default")]

LENGTHS = [5000, 40, 64, 700, 12_345]
K = 300
WIDTH = 194 * 64


def original(*_: Any, **__: Any) -> Any:
    raise AssertionError("the original code was called")


def vllm_module() -> tuple[Any, _pending.Installed]:
    module: Any = ModuleType("indexer")
    module.ops = SimpleNamespace(top_k_per_row_prefill=original)
    for name in (vllm.LOGITS, vllm.DECODE_LOGITS, vllm.MERGE):
        setattr(module, name, original)
    module.get_indexer_topk = lambda backend: original
    made = _pending.Installed("vllm")
    assert vllm.missing(module) is None
    vllm.apply(module, made)
    return module, made


def vllm_step(module: Any, step: Step, out: Any) -> None:
    """What `sparse_attn_indexer` does with a decode step."""
    logits = module.fp8_fp4_paged_mqa_logits(
        (step.q, None),
        step.cache,
        step.weights,
        step.lens,
        step.table,
        None,
        max_model_len=WIDTH,
        indices=None,
    )
    next_n = step.q.shape[1]
    module.get_indexer_topk("auto")(logits, step.lens, next_n, out[: logits.shape[0], :K], K, WIDTH)


@pytest.mark.parametrize("next_n", [1, 2])
def test_vllm(next_n: int) -> None:
    step = make(LENGTHS, next_n=next_n)
    module, made = vllm_module()
    out = torch.full((20, K + 4), -7, dtype=torch.int32, device="cuda")
    vllm_step(module, step, out)
    rows = len(LENGTHS) * next_n
    assert torch.equal(out[:rows, :K], dosa.paged_topk(*step, K).indices)
    assert bool((out[rows:] == -7).all())
    assert bool((out[:, K:] == -7).all())
    assert made.calls == {"decode": 1}
    assert not made.fallbacks


def test_vllm_in_a_graph() -> None:
    step = make(LENGTHS)
    module, made = vllm_module()
    out = torch.full((len(LENGTHS), K), -7, dtype=torch.int32, device="cuda")
    vllm_step(module, step, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        vllm_step(module, step, out)
    for fewer in (0, 3, 30):
        step.lens -= fewer
        out.fill_(-7)
        graph.replay()
        assert torch.equal(out, dosa.paged_topk(*step, K).indices)
    assert made.calls == {"decode": 2}


def test_vllm_refused_by_the_engine() -> None:
    """A head dimension that the device's decode does not have: the original code, counted."""
    step = make(LENGTHS)
    module, made = vllm_module()
    step.q = step.q[..., :64].contiguous()
    step.cache = step.cache[..., : 64 + 4].contiguous()
    out = torch.full((len(LENGTHS), K), -7, dtype=torch.int32, device="cuda")
    with pytest.raises(AssertionError, match="the original code was called"):
        vllm_step(module, step, out)
    assert not made.calls
    ((reason, count),) = made.fallbacks.items()
    assert count == 1
    assert reason.startswith("refused: ")


@pytest.mark.parametrize("most", [2, 100])
def test_sglang(most: int) -> None:
    """Pieces of a step joined, tokens that are always kept, slots of a page table."""
    step = make(LENGTHS)
    indexer: Any = ModuleType("indexer")
    setattr(indexer, sglang.DECODE_LOGITS, lambda: original)
    made = _pending.Installed("sglang")
    sglang._replace_decode_logits(indexer, made)
    call = getattr(indexer, sglang.DECODE_LOGITS)()
    parts = []
    for start in range(0, len(LENGTHS), most):
        some = slice(start, start + most)
        arrays = (step.q[some], step.cache, step.weights[some], step.lens[some], step.table[some])
        parts.append(call(*arrays, None, WIDTH, clean_logits=False))
    logits = torch.cat(parts) if len(parts) > 1 else parts[0]
    assert isinstance(logits, _pending.PendingLogits)
    assert logits.shape == (len(LENGTHS), WIDTH)
    logits.forced_first, logits.forced_last = 3, 5
    table = torch.randperm(len(LENGTHS) * WIDTH, device="cuda").int().view(len(LENGTHS), -1)
    rows = torch.arange(len(LENGTHS) + 1, dtype=torch.int32, device="cuda")
    pages = (SimpleNamespace(page_table_1=table), rows, None)
    lengths = step.lens.flatten()
    found = sglang._select(logits, lengths, None, K, False, False, None, pages, made)
    forced: Any = {"forced_first": 3, "forced_last": 5}
    ids = dosa.paged_topk(*step, K, **forced).indices
    slots = table.gather(1, ids.clamp(min=0).long())
    assert torch.equal(found, torch.where(ids >= 0, slots, -1))
    assert made.calls == {"slot": 1}
    assert not made.fallbacks
