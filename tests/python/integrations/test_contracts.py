# SPDX-License-Identifier: Apache-2.0
"""Names, signatures and argument orders of published packages that the integrations rely on.

`DOSA_CONTRACTS=1` runs them; a failure of "newest" means that upstream has moved on.
"""

from __future__ import annotations

import ast
from types import ModuleType

import pytest

import published
from dosa.integrations import _guard, sglang, vllm
from dosa.integrations.transformers import _patch

pytestmark = published.WANTED

RELEASES = {
    "transformers": (_patch, ["5.17.0", "5.18.0", "5.20.2", "5.23.0", "5.24.0", "newest"]),
    "vllm": (vllm, ["0.29.0", "0.31.0", "0.33.0", "newest"]),
    "sglang": (sglang, ["0.5.22", "0.5.23", "newest"]),
}


def releases(package: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", RELEASES[package][1])


@pytest.mark.parametrize("package", RELEASES)
def test_the_newest_release_is_in_the_range_of_the_guard(package: str) -> None:
    module: ModuleType = RELEASES[package][0]
    version = published.version_of(package, "newest")
    assert _guard.version_problem(package, version, module.FIRST, module.BEYOND) is None


@releases("transformers")
@pytest.mark.parametrize(
    ("path", "name"),
    [("glm_moe_dsa", "GlmMoeDsa"), ("deepseek_v32", "DeepseekV32")],
)
def test_transformers_indexers(version: str, path: str, name: str) -> None:
    text = published.source(
        "transformers", version, f"transformers/models/{path}/modeling_{path}.py"
    )
    found = published.parameters(text, f"{name}Indexer.forward")
    assert tuple(found[1:-1]) == _patch.PARAMETERS
    assert found[-1] in _patch.CACHE_PARAMETERS
    attributes = ast.unparse(published.definition(text, f"{name}Indexer.__init__"))
    for attribute in _patch.ATTRIBUTES:
        assert f"self.{attribute}" in attributes
    rotate = _patch.INDEXERS[f"{name}Indexer"]
    assert published.parameters(text, rotate)[:4] == ["q", "k", "cos", "sin"]
    assert "unsqueeze_dim" in published.parameters(text, rotate)
    (call,) = published.calls(text, f"{name}Attention.forward", "self.indexer")
    given = [ast.unparse(argument) for argument in call.args]
    assert given[:3] == ["hidden_states", "q_resid", "position_embeddings"]
    assert given[3:] == ["attention_mask[:, 0, :, :]", "position_ids"]
    assert [keyword.arg for keyword in call.keywords] == [found[-1]]
    (call,) = published.calls(text, f"{name}Attention.forward", "attention_interface")
    given = [ast.unparse(argument) for argument in call.args]
    assert given == ["self", "query_states", "key_states", "value_states", "attention_mask"]
    assert "indices" in [keyword.arg for keyword in call.keywords]


@releases("transformers")
def test_transformers_masks(version: str) -> None:
    text = published.source("transformers", version, "transformers/masking_utils.py")
    wanted = {"batch_size", "q_length", "kv_length", "q_offset", "allow_is_causal_skip"}
    assert wanted < set(published.parameters(text, "sdpa_mask"))
    assert published.definition(text, "AttentionMaskInterface")
    (call,) = published.calls(text, "create_causal_mask", "mask_interface")
    assert not call.args
    assert wanted < {keyword.arg for keyword in call.keywords}
    text = published.source("transformers", version, "transformers/integrations/sdpa_attention.py")
    found = published.parameters(text, "sdpa_attention_forward")
    assert found[:7] == [
        *("module", "query", "key", "value", "attention_mask", "dropout", "scaling"),
    ]


@releases("vllm")
def test_vllm(version: str) -> None:
    text = published.source("vllm", version, "vllm/utils/deep_gemm.py")
    assert tuple(published.parameters(text, vllm.LOGITS)[:5]) == vllm.LOGITS_PARAMETERS
    text = published.source("vllm", version, "vllm/_custom_ops.py")
    assert tuple(published.parameters(text, vllm.SELECTION)) == vllm.SELECTION_PARAMETERS
    text = published.source("vllm", version, vllm.MODULE.replace(".", "/") + ".py")
    imported = [
        ast.unparse(node) for node in ast.parse(text).body if isinstance(node, ast.ImportFrom)
    ]
    assert "from vllm import _custom_ops as ops" in imported
    assert any("vllm.utils.deep_gemm" in line and vllm.LOGITS in line for line in imported)
    merge = ["logits", "topk_indices", "topk_tokens", "dcp_rank", "dcp_world_size"]
    assert published.parameters(text, vllm.MERGE)[:5] == merge
    (call,) = published.calls(text, "sparse_attn_indexer", vllm.LOGITS)
    assert len(call.args) >= 5
    assert isinstance(call.args[0], ast.Tuple)
    assert isinstance(call.args[1], ast.Tuple)
    (call,) = published.calls(text, "sparse_attn_indexer", f"ops.{vllm.SELECTION}")
    assert len(call.args) == len(vllm.SELECTION_PARAMETERS)
    assert ast.unparse(call.args[3]) == "topk_indices"


@pytest.mark.parametrize("version", ["0.33.0", "newest"])
def test_vllm_decode(version: str) -> None:
    text = published.source("vllm", version, "vllm/utils/deep_gemm.py")
    assert tuple(published.parameters(text, vllm.DECODE_LOGITS)) == vllm.DECODE_PARAMETERS
    text = published.source("vllm", version, vllm.MODULE.replace(".", "/") + ".py")
    imported = [
        ast.unparse(node) for node in ast.parse(text).body if isinstance(node, ast.ImportFrom)
    ]
    for name in (vllm.DECODE_LOGITS, vllm.DECODE_SELECTION):
        assert any(name in line for line in imported)
    (call,) = published.calls(text, "sparse_attn_indexer", vllm.DECODE_LOGITS)
    given = [*(None for _ in call.args), *(keyword.arg for keyword in call.keywords)]
    assert given[6:] == ["max_model_len", "indices"]
    (call,) = published.calls(text, "sparse_attn_indexer", f"{vllm.DECODE_SELECTION}(topk_backend)")
    assert len(call.args) == vllm.DECODE_ARGUMENTS
    assert [ast.unparse(argument) for argument in call.args[2:5]] == [
        *("next_n", "topk_indices", "topk_tokens"),
    ]


@releases("vllm")
def test_vllm_plugins(version: str) -> None:
    text = published.source("vllm", version, "vllm/plugins/__init__.py")
    assert "vllm.general_plugins" in text
    assert "envs.VLLM_PLUGINS" in text
    text = published.source("vllm", version, "vllm/envs.py")
    assert f'"{vllm.PLUGINS}"' in text


@releases("sglang")
def test_sglang(version: str) -> None:
    text = published.source("sglang", version, sglang.BACKEND.replace(".", "/") + ".py")
    found = published.parameters(text, "DSATopKBackend.topk_transform")
    assert tuple(found) == sglang.SELECTION_PARAMETERS
    text = published.source("sglang", version, sglang.INDEXER.replace(".", "/") + ".py")
    found = published.parameters(text, f"Indexer.{sglang.FORCED}")
    assert tuple(found) == sglang.FORCED_PARAMETERS
    ragged = "Indexer._get_topk_ragged"
    for call in published.calls(text, ragged, f"{sglang.LOGITS}()"):
        assert len(call.args) == 5
        assert ast.unparse(call.args[1]) == "kv_fp8"
        assert [keyword.arg for keyword in call.keywords] == ["clean_logits"]
    assert published.calls(text, ragged, f"{sglang.LOGITS}()")
    paged = "Indexer._get_topk_paged"
    for call in published.calls(text, paged, f"{sglang.DECODE_LOGITS}()"):
        assert len(call.args) == 7
        assert [keyword.arg for keyword in call.keywords] == ["clean_logits"]
    assert published.calls(text, paged, f"{sglang.DECODE_LOGITS}()")
    for call in published.calls(text, paged, "metadata.topk_transform"):
        assert [ast.unparse(argument) for argument in call.args] == ["logits", "self.index_topk"]
    for call in published.calls(text, ragged, "metadata.topk_transform"):
        assert [ast.unparse(argument) for argument in call.args][1:] == ["self.index_topk"]
