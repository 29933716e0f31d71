# SPDX-License-Identifier: Apache-2.0
"""The adapter to SGLang on host tensors: its own published code, run with stand-ins.

What surrounds the code under test (environment, pool, kernels) is replaced by the least that
lets it run on a host. No server and no GPU is involved.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import oracle  # noqa: E402
import published  # noqa: E402
from dosa.integrations import _pending, sglang  # noqa: E402
from serving import Batch, K, Steps, all_logits, step_logits  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def batch() -> Batch:
    return Batch()


class Sglang:
    """SGLang's Top-K backend and indexer metadata as published, and its forced tokens."""

    def __init__(self, version: str, fused: bool) -> None:
        stubs = {
            "sglang": {},
            "sglang.srt": {},
            "sglang.srt.environ": {
                "envs": SimpleNamespace(
                    SGLANG_DSA_FUSE_TOPK=SimpleNamespace(get=lambda: fused),
                    SGLANG_OPT_USE_TOPK_V2=SimpleNamespace(get=lambda: False),
                )
            },
            "sglang.srt.runtime_context": {"get_exec": None, "get_spec": None},
            "sglang.srt.utils": {"is_hip": lambda: False},
        }
        for name, content in stubs.items():
            module = ModuleType(name)
            module.__dict__.update(content)
            sys.modules[name] = module
        path = sglang.BACKEND.replace(".", "/") + ".py"
        self.backend = ModuleType("sglang.backend")
        sys.modules["sglang.backend"] = self.backend
        exec(published.source("sglang", version, path), self.backend.__dict__)
        path = path.replace("dsa_topk_backend", "dsa_indexer_metadata")
        metadata: dict[str, Any] = {
            "BaseIndexerMetadata": object,
            "DSATopKBackend": self.backend.DSATopKBackend,
            "TopkTransformMethod": self.backend.TopkTransformMethod,
            "compute_cu_seqlens": lambda lens: torch.cat((lens.new_zeros(1), lens.cumsum(0))).int(),
            "torch": torch,
        }
        text = published.source("sglang", version, path)
        published.run(text, ["DSAIndexerMetadata"], metadata)
        self.metadata = metadata["DSAIndexerMetadata"]
        text = published.source("sglang", version, sglang.INDEXER.replace(".", "/") + ".py")
        node = published.definition(text, f"Indexer.{sglang.FORCED}")
        self.indexer = ModuleType("sglang.indexer")
        forced: dict[str, Any] = {"torch": torch}
        published.run(ast.unparse(node), [sglang.FORCED], forced)
        owner = type("Indexer", (), {sglang.FORCED: forced[sglang.FORCED]})
        self.indexer.Indexer = owner  # type: ignore[attr-defined]
        self.computed = 0
        self.indexer.resolve_fp8_mqa_logits_fn = lambda: self.logits  # type: ignore[attr-defined]

        text = published.source(
            "sglang", version, "sglang/kernels/ops/attention/dsa/paged_mqa_logits.py"
        )
        self.paged: dict[str, Any] = {"torch": torch, "Callable": Any}
        names = ["_restore_row_stride", "deepgemm_paged_mqa_logits_native"]
        published.run(text, [*names, "deepgemm_paged_mqa_logits_split"], self.paged)
        self.indexer.resolve_fp8_paged_mqa_logits_fn = (  # type: ignore[attr-defined]
            lambda: self.paged_logits
        )

    def paged_logits(self, q: Any, *rest: Any, clean_logits: bool) -> Any:
        assert not clean_logits
        self.computed += 1
        *arrays, _, width = rest
        return step_logits(q, *arrays, width)

    def run_step(self, steps: Steps, attention: Any, first: int, last: int, most: int) -> Any:
        """What `Indexer._get_topk_paged` does behind the choice of a backend."""
        q, cache, weights, lens, table = steps.tensors()
        cache, width = cache.unsqueeze(2), table.shape[1] * steps.page
        logits_of = self.indexer.resolve_fp8_paged_mqa_logits_fn

        def chunked(
            q: Any, cache: Any, w: Any, lens: Any, table: Any, plan: Any, *rest: Any, **n: Any
        ) -> Any:
            if len(q) <= most:
                return logits_of()(q, cache, w, lens, table, plan, *rest, **n)
            each = q.shape[1]
            parts = []
            for start in range(0, len(q), most):
                some = slice(start, start + most)
                rows = slice(start * each, (start + most) * each)
                parts.append(
                    logits_of()(q[some], cache, w[rows], lens[some], table[some], plan, *rest, **n)
                )
            return torch.cat(parts, dim=0)

        common = {"q_offset": steps.rows}
        if steps.next_n > 1:
            expanded = table.repeat_interleave(steps.next_n, 0)
            call = self.paged["deepgemm_paged_mqa_logits_native"]
            common |= {"B": len(lens), "next_n": steps.next_n}
        else:
            expanded, call = table, self.paged["deepgemm_paged_mqa_logits_split"]
        logits = call(chunked, q, cache, weights, lens, expanded, None, width, **common)
        indexer = self.indexer.Indexer()
        indexer.num_init_tokens, indexer.num_local_tokens = first, last
        metadata = object.__new__(self.metadata)
        metadata.__dict__.update(
            attn_metadata=attention,
            topk_transform_method=self.backend.TopkTransformMethod.PAGED,
            topk_backend=self.backend.DSATopKBackend.TORCH,
            force_unfused_topk=False,
        )
        indexer._mask_init_and_local_tokens(logits, lens.flatten())
        return metadata.topk_transform(logits, K)

    def logits(self, q: Any, kv: Any, weights: Any, ks: Any, ke: Any, clean_logits: bool) -> Any:
        assert not clean_logits
        self.computed += 1
        return all_logits((q, *kv, weights, ks, ke))

    def run(self, batch: Batch, method: str, attention: Any, first: int, last: int) -> Any:
        """What `Indexer._get_topk_ragged` does behind the gathering of keys."""
        q, k, scale, weights, start, end = batch.tensors()
        indexer = self.indexer.Indexer()
        indexer.num_init_tokens, indexer.num_local_tokens = first, last
        metadata = object.__new__(self.metadata)
        metadata.__dict__.update(
            attn_metadata=attention,
            topk_transform_method=self.backend.TopkTransformMethod[method],
            topk_backend=self.backend.DSATopKBackend.TORCH,
            force_unfused_topk=False,
        )
        call = self.indexer.resolve_fp8_mqa_logits_fn()
        logits = call(q, (k, scale), weights, start, end, clean_logits=False)
        assert logits.shape == (batch.rows, batch.keys)
        indexer._mask_init_and_local_tokens(logits, end - start, start)
        return metadata.topk_transform(logits, K, ks=start)


@pytest.fixture
def sglang_modules() -> Iterator[None]:
    """Take the stand-ins out of the list of modules again."""
    before = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(before):
        if name.split(".")[0] == "sglang":
            del sys.modules[name]


@published.WANTED
@pytest.mark.usefixtures("sglang_modules")
@pytest.mark.parametrize("version", ["0.5.22", "0.5.23"])
class TestSglang:
    def attention(self, batch: Batch) -> Any:
        _, _, _, _, start, end = batch.tensors()
        made = torch.Generator().manual_seed(1)
        slots = torch.randperm(len(batch.total) * max(batch.total), generator=made).int()
        return SimpleNamespace(
            dsa_seqlens_expanded=end - start,
            cu_seqlens_q=torch.tensor([0, *np.cumsum(batch.new)], dtype=torch.int32),
            topk_indices_offset=start + 1000,
            page_table_1=slots.view(len(batch.total), -1),
            token_to_batch_idx=torch.tensor(batch.request),
        )

    @pytest.mark.parametrize(("first", "last"), [(0, 0), (3, 5)])
    def test_positions_are_those_of_their_torch_backend(
        self, version: str, first: int, last: int, batch: Batch
    ) -> None:
        engine = Sglang(version, fused=False)
        attention = self.attention(batch)
        theirs = engine.run(batch, "RAGGED", attention, first, last).numpy()
        made = _pending.Installed("sglang")
        assert sglang.missing(engine.indexer, engine.backend) is None
        sglang.apply(engine.indexer, engine.backend, made)
        ours = engine.run(batch, "RAGGED", attention, first, last).numpy()
        expected = batch.expected(batch.inputs, forced_first=first, forced_last=last)
        np.testing.assert_array_equal(ours, expected)
        assert engine.computed == 1
        assert made.calls == {"relative": 1}
        # Theirs settles ties in no stated way: the scores must be the same, not the ids.
        exact = oracle.scores(batch.inputs)
        for row in range(batch.rows):
            start, end = batch.inputs.k_start[row], batch.inputs.k_end[row]
            values = exact[row, start:end].copy()
            values[:first] = values[max(len(values) - last, 0) :] = np.inf
            kept = [np.sort(values[ids[row][ids[row] >= 0]]) for ids in (theirs, ours)]
            np.testing.assert_array_equal(kept[0], kept[1])

    def test_ragged(self, version: str, batch: Batch) -> None:
        engine = Sglang(version, fused=True)
        made = _pending.Installed("sglang")
        sglang.apply(engine.indexer, engine.backend, made)
        found = engine.run(batch, "RAGGED", self.attention(batch), 0, 0).numpy()
        offset = batch.inputs.k_start[:, None] + 1000
        expected = np.where(batch.relative >= 0, batch.relative + offset, -1)
        np.testing.assert_array_equal(found, expected)
        assert made.calls == {"offset": 1}

    def test_paged(self, version: str, batch: Batch) -> None:
        engine = Sglang(version, fused=True)
        made = _pending.Installed("sglang")
        sglang.apply(engine.indexer, engine.backend, made)
        attention = self.attention(batch)
        found = engine.run(batch, "PAGED", attention, 2, 1).numpy()
        relative = batch.expected(batch.inputs, forced_first=2, forced_last=1)
        for row in range(batch.rows):
            table = attention.page_table_1[batch.request[row]].tolist()
            assert found[row].tolist() == [table[i] if i >= 0 else -1 for i in relative[row]]
        assert made.calls == {"slot": 1}
        made.uninstall()
        assert "topk_transform" in vars(engine.backend.DSATopKBackend)

    def test_without_a_table_of_page_size_1(self, version: str, batch: Batch) -> None:
        engine = Sglang(version, fused=True)
        seen = []

        def original(self: Any, logits: Any, *rest: Any) -> str:
            seen.append(logits)
            return "the original"

        engine.backend.DSATopKBackend.topk_transform = original
        made = _pending.Installed("sglang")
        sglang.apply(engine.indexer, engine.backend, made)
        attention = self.attention(batch)
        attention.page_table_1 = None
        assert engine.run(batch, "PAGED", attention, 2, 1) == "the original"
        assert made.fallbacks == {"no page table of page size 1": 1}
        start, end = batch.inputs.k_start[7], batch.inputs.k_end[7]
        infinite = torch.isinf(seen[0][7, start:end]).nonzero()[:, 0].tolist()
        assert infinite == [0, 1, end - start - 1]


@published.WANTED
@pytest.mark.parametrize("version", ["0.5.23"])
@pytest.mark.parametrize("next_n", [1, 2])
@pytest.mark.parametrize("most", [3, 100])
@pytest.mark.parametrize(("first", "last"), [(0, 0), (2, 3)])
def test_decode(
    version: str, next_n: int, most: int, first: int, last: int, sglang_modules: None
) -> None:
    """Steps of decode and of target verification, in one call of the kernel and in several."""
    steps = Steps(next_n)
    for fused in (False, True):
        engine = Sglang(version, fused)
        made = torch.Generator().manual_seed(1)
        slots = torch.randperm(len(steps.lengths) * 400, generator=made).int()
        attention = SimpleNamespace(
            dsa_seqlens_expanded=torch.from_numpy(steps.lens).flatten(),
            cu_seqlens_q=torch.arange(len(steps.lengths) + 1, dtype=torch.int32) * next_n,
            topk_indices_offset=None,
            page_table_1=slots.view(len(steps.lengths), -1),
        )
        installed = _pending.Installed("sglang")
        sglang.apply(engine.indexer, engine.backend, installed)
        found = engine.run_step(steps, attention, first, last, most).numpy()
        relative = steps.expected(forced_first=first, forced_last=last)
        if fused:
            request = np.arange(steps.rows) // next_n
            table = attention.page_table_1.numpy()[request]
            mapped = np.take_along_axis(table, np.maximum(relative, 0), 1)
            relative = np.where(relative >= 0, mapped, -1)
        np.testing.assert_array_equal(found, relative)
        assert engine.computed == 0, "the logits were computed"
        assert installed.calls == {"slot" if fused else "relative": 1}
        assert not installed.fallbacks


def test_slots_of_chosen_requests() -> None:
    """Chunks of a step name the request of every row."""
    table = torch.arange(30, dtype=torch.int32).view(3, 10) + 100
    positions = torch.tensor([[0, 9, -1], [3, -1, -1], [1, 2, 4]], dtype=torch.int32)
    ones = torch.tensor([0, 1, 2, 3], dtype=torch.int32)
    found = sglang.slots(positions, table, ones, torch.tensor([2, 0, 2]))
    assert found.tolist() == [[120, 129, -1], [103, -1, -1], [121, 122, 124]]
    assert found.dtype == torch.int32
    rows = torch.tensor([0, 2, 2, 3], dtype=torch.int32)  # two of the first, none of the second
    found = sglang.slots(positions, table, rows)
    assert found.tolist() == [[100, 109, -1], [103, -1, -1], [121, 122, 124]]
