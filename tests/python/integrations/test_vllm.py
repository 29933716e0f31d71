# SPDX-License-Identifier: Apache-2.0
"""The adapter to vLLM on host tensors: its own published code, run with stand-ins.

What surrounds the code under test (forward context, workspace, cache kernels) is replaced by the
least that lets it run on a host. No server and no GPU is involved.
"""

from __future__ import annotations

import contextlib
from importlib import metadata
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import published  # noqa: E402
from dosa.integrations import _pending, vllm  # noqa: E402
from serving import Batch, D, K, Steps, all_logits, rank_rows, step_logits  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def batch() -> Batch:
    return Batch()


class Vllm:
    """The prefill of vLLM's indexer: its published function with stand-ins around it."""

    def __init__(self, version: str, batch: Batch) -> None:
        self.batch, self.version = batch, version
        text = published.source("vllm", version, vllm.MODULE.replace(".", "/") + ".py")
        self.module = ModuleType("indexer")
        self.parameters = published.parameters(text, "sparse_attn_indexer")
        metadata = type("DeepseekV32IndexerMetadata", (SimpleNamespace,), {})
        self.metadata = metadata
        namespace: dict[str, Any] = self.module.__dict__
        namespace.update(
            torch=torch,
            get_forward_context=lambda: SimpleNamespace(
                attn_metadata={"layer": self.step()}, cudagraph_runtime_mode=None
            ),
            CUDAGraphMode=SimpleNamespace(FULL="full"),
            current_platform=SimpleNamespace(
                fp8_dtype=lambda: torch.float8_e4m3fn, is_xpu=lambda: False, is_cuda=lambda: False
            ),
            _resolve_layer_name=lambda name: name,
            DeepseekV32IndexerMetadata=metadata,
            current_workspace_manager=lambda: SimpleNamespace(
                get_simultaneous=lambda *specs: [torch.empty(s, dtype=d) for s, d in specs]
            ),
            PrefillRowShard=SimpleNamespace(from_metadata=lambda *_: None),
            mqa_logits_use_mx_scales=lambda: False,
            mqa_logits_mx_inputs=lambda q, scale, weights: (scale, weights),
            MXFP4_BLOCK_SIZE=32,
            ops=SimpleNamespace(
                cp_gather_indexer_k_quant_cache=self.gather, top_k_per_row_prefill=self.rank
            ),
            fp8_fp4_mqa_logits=self.logits,
            _apply_candidate_mask=self.hide,
        )
        names = ["_gather_workspace_shapes", "_merge_dcp_topk_global", "sparse_attn_indexer"]
        names += ["kv_cache_as_quant_view"] if "def kv_cache_as_quant_view" in text else []
        names += ["as_fp32_logits"] if "def as_fp32_logits" in text else []
        published.run(text, names, namespace)
        self.computed = self.ranked = 0

    def step(self) -> Any:
        """One step in two chunks, the second with the keys of the first (queries split)."""
        _, _, _, _, start, end = self.batch.tensors()
        common = {
            "block_table": None,
            "local_cu_seq_lens": torch.tensor([0]),
            "local_total_seq_lens": self.batch.keys,
            "max_local_total_seq_lens": self.batch.keys,
            "total_seq_lens": self.batch.keys,
            "pcp_deinterleave_idx": None,
            "max_seqlen_k": max(self.batch.total),
        }
        cut = 41
        chunks = [
            SimpleNamespace(
                token_start=a,
                token_end=b,
                cu_seqlen_ks=start[a:b],
                cu_seqlen_ke=end[a:b],
                skip_kv_gather=False,
                **common,
            )
            for a, b in ((0, cut), (cut, self.batch.rows))
        ]
        return self.metadata(
            slot_mapping=torch.arange(self.batch.rows),
            num_decodes=0,
            num_decode_tokens=0,
            num_prefills=3,
            prefill=SimpleNamespace(chunks=chunks),
        )

    def decode(self, steps: Steps) -> Any:
        """The part of a step that decodes, of whole requests in pages."""
        _, _, _, lens, table = steps.tensors()
        decode = SimpleNamespace(
            decode_lens=torch.full((len(lens),), steps.next_n),
            requires_padding=False,
            seq_lens=lens,
            block_table=table,
            schedule_metadata=None,
            indices=None,
            global_seq_lens=None,
        )
        return self.metadata(
            slot_mapping=torch.arange(steps.rows),
            num_decodes=len(lens),
            num_decode_tokens=steps.rows,
            num_prefills=0,
            decode=decode,
            max_seq_len=max(steps.lengths),
        )

    def run_decode(self, steps: Steps, **changes: Any) -> Any:
        q, cache, weights, *_ = steps.tensors()
        metadata = self.decode(steps)
        for name, value in changes.pop("decode", {}).items():
            setattr(metadata.decode, name, value)
        self.module.__dict__.update(
            get_forward_context=lambda: SimpleNamespace(
                attn_metadata={"layer": metadata}, cudagraph_runtime_mode=None
            ),
            fp8_fp4_paged_mqa_logits=self.module.__dict__.get(
                "fp8_fp4_paged_mqa_logits", self.paged_logits
            ),
            get_indexer_topk=self.module.__dict__.get("get_indexer_topk", lambda _: self.rank_step),
        )
        return self.run(
            hidden_states=torch.empty((steps.rows, 1)),
            q_quant=q,
            kv_cache=cache,
            weights=weights,
            topk_indices_buffer=torch.full((steps.rows, K), -7, dtype=torch.int32),
            topk_backend="auto",
            **changes,
        )

    def paged_logits(
        self,
        q: Any,
        cache: Any,
        weights: Any,
        lens: Any,
        table: Any,
        schedule: Any,
        max_model_len: int,
        indices: Any = None,
    ) -> Any:
        self.computed += 1
        return step_logits(q[0], cache, weights, lens, table, max_model_len)

    def rank_step(
        self, logits: Any, lens: Any, next_n: int, out: Any, topk: int, longest: int
    ) -> None:
        self.ranked += 1
        rank_rows(logits, lens, out, topk)

    def gather(self, cache: Any, k: Any, scale: Any, *_: Any) -> None:
        k.view(torch.uint8).copy_(cache[0])
        scale.copy_(cache[1])

    def logits(
        self, q: Any, kv: Any, weights: Any, start: Any, end: Any, *rest: Any, **_: Any
    ) -> Any:
        self.computed += 1
        return all_logits((q[0], *kv, weights, start, end), rest[0] if rest else 0)

    def rank(self, logits: Any, start: Any, end: Any, out: Any, rows: int, *rest: int) -> None:
        """The selection that vLLM's operator documents: relative ids of the best, then -1."""
        self.ranked += 1
        assert rest == (logits.stride(0), logits.stride(1), K)
        for row in range(rows):
            window = logits[row, start[row] : end[row]]
            kept = min(K, len(window))
            best = torch.sort(window, descending=True, stable=True).indices[:kept]
            out[row, :kept] = best.sort().values.int()
            out[row, kept:] = -1

    def hide(self, logits: Any, start: Any, *_: Any) -> None:
        """In the place of the candidate filter: no row may have its first eight keys."""
        for row in range(len(logits)):
            left = 0 if start is None else int(start[row])
            logits[row, left : left + 8] = -torch.inf

    def run(self, **changes: Any) -> Any:
        q, k, scale, weights, *_ = self.batch.tensors()
        out = changes.get("topk_indices_buffer")
        if out is None:
            out = torch.full((self.batch.rows, K), -7, dtype=torch.int32)
        cache = (k.view(torch.uint8), scale.view(torch.uint8).view(-1, 4))
        given: dict[str, Any] = {
            "hidden_states": torch.empty((self.batch.rows, 1)),
            "k_cache_prefix": "layer",
            "kv_cache": cache,
            "q_quant": q,
            "q_scale": None,
            "k": None,
            "weights": weights,
            "quant_block_size": 128,
            "scale_fmt": "ue8m0",
            "topk_tokens": K,
            "head_dim": D,
            "max_model_len": 4096,
            "total_seq_lens": self.batch.keys,
            "topk_indices_buffer": out,
            "skip_k_cache_insert": True,
            "use_pcp": False,
            "pcp_shard_decode_requests": False,
            "dense_mha_metadata_layer_name": None,
            **changes,
        }
        arguments = {name: given[name] for name in self.parameters if name in given}
        self.module.sparse_attn_indexer(**arguments)
        return out.numpy()


@published.WANTED
@pytest.mark.parametrize("version", ["0.29.0", "0.31.0", "0.33.0"])
class TestVllm:
    def test_prefill(self, version: str, batch: Batch) -> None:
        engine = Vllm(version, batch)
        np.testing.assert_array_equal(engine.run(), batch.relative)
        assert (engine.computed, engine.ranked) == (2, 2)
        made = _pending.Installed("vllm")
        assert vllm.missing(engine.module) is None
        vllm.apply(engine.module, made)
        np.testing.assert_array_equal(engine.run(), batch.relative)
        assert (engine.computed, engine.ranked) == (2, 2), "the logits were computed"
        assert made.calls == {"relative": 2}
        assert not made.fallbacks
        made.uninstall()
        np.testing.assert_array_equal(engine.run(), batch.relative)
        assert engine.computed == 4

    def test_others_that_read_the_logits_have_them(self, version: str, batch: Batch) -> None:
        if version == "0.29.0":
            pytest.skip("this release has no candidate filter")
        engine = Vllm(version, batch)
        options = {
            "candidate_blocks": torch.zeros((batch.rows, 1), dtype=torch.int32),
            "candidate_block_size": 8,
        }
        expected = engine.run(**options)
        assert not np.array_equal(expected, batch.relative)
        made = _pending.Installed("vllm")
        vllm.apply(engine.module, made)
        np.testing.assert_array_equal(engine.run(**options), expected)
        assert made.fallbacks == {"logits that were read before the selection": 2}
        assert not made.calls

    def test_fp4_is_left_alone(self, version: str, batch: Batch) -> None:
        engine = Vllm(version, batch)
        made = _pending.Installed("vllm")
        vllm.apply(engine.module, made)
        q, k, scale, weights, start, end = batch.tensors()
        given = ((q.view(torch.int8), None), (k, scale), weights, start, end)
        engine.module.fp8_fp4_mqa_logits((q, None), *given[1:])
        assert engine.computed == 0
        with contextlib.suppress(Exception):  # the stand-in takes no such queries either
            engine.module.fp8_fp4_mqa_logits(*given)
        assert engine.computed == 1
        assert made.fallbacks == {"queries or keys that are no float8_e4m3fn": 1}


@published.WANTED
@pytest.mark.parametrize("version", ["0.33.0"])
class TestDecode:
    @pytest.mark.parametrize("next_n", [1, 2])
    def test_steps(self, version: str, next_n: int, batch: Batch) -> None:
        engine, steps = Vllm(version, batch), Steps(next_n)
        expected = steps.expected()
        np.testing.assert_array_equal(engine.run_decode(steps), expected)
        assert (engine.computed, engine.ranked) == (1, 1)
        made = _pending.Installed("vllm")
        vllm.apply(engine.module, made)
        np.testing.assert_array_equal(engine.run_decode(steps), expected)
        assert (engine.computed, engine.ranked) == (1, 1), "the logits were computed"
        assert made.calls == {"decode": 1}
        assert not made.fallbacks
        made.uninstall()
        np.testing.assert_array_equal(engine.run_decode(steps), expected)
        assert engine.computed == 2

    def test_others_that_read_the_logits_have_them(self, version: str, batch: Batch) -> None:
        engine, steps = Vllm(version, batch), Steps(1)
        options = {
            "candidate_blocks": torch.zeros((steps.rows, 1), dtype=torch.int32),
            "candidate_block_size": 8,
        }
        expected = engine.run_decode(steps, **options)
        assert not np.array_equal(expected, steps.expected())
        made = _pending.Installed("vllm")
        vllm.apply(engine.module, made)
        np.testing.assert_array_equal(engine.run_decode(steps, **options), expected)
        assert made.fallbacks == {"logits that were read before the selection": 1}

    def test_what_is_left_to_the_original(self, version: str, batch: Batch) -> None:
        engine, steps = Vllm(version, batch), Steps(1)
        engine.run_decode(steps)
        made = _pending.Installed("vllm")
        vllm.apply(engine.module, made)
        varlen = {"indices": torch.arange(steps.rows)}
        np.testing.assert_array_equal(engine.run_decode(steps, decode=varlen), steps.expected())
        assert made.fallbacks == {"requests with different numbers of queries": 1}
        assert not made.calls


def test_the_plugin_waits_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = []
    monkeypatch.setattr(vllm, "install", lambda: installed.append(1))
    for names in (None, "", "other", "dosa_not"):
        monkeypatch.delenv("VLLM_PLUGINS", raising=False)
        if names is not None:
            monkeypatch.setenv("VLLM_PLUGINS", names)
        vllm.plugin()
        assert not installed
    monkeypatch.setenv("VLLM_PLUGINS", "other, dosa")
    vllm.plugin()
    assert installed == [1]
    (entry,) = metadata.entry_points(group="vllm.general_plugins", name="dosa")
    assert entry.load() is vllm.plugin


def test_vllm_names_that_are_missing() -> None:
    module = ModuleType("indexer")
    module.ops = SimpleNamespace()  # type: ignore[attr-defined]
    found = "indexer: found no fp8_fp4_mqa_logits, _merge_dcp_topk_global, expected them"
    assert vllm.missing(module) == found
