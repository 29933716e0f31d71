# SPDX-License-Identifier: Apache-2.0
"""Switching a model over and back, and when it is left alone."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="needs transformers 5.17 to 5.24")

import dsa_models  # noqa: E402
from dosa import ArgumentError, ArgumentTypeError, Error  # noqa: E402
from dosa.integrations import IntegrationWarning  # noqa: E402
from dosa.integrations.transformers import patch, unpatch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


def test_there_and_back() -> None:
    model = dsa_models.make("glm_moe_dsa")
    before = {name: set(module.__dict__) for name, module in model.named_modules()}
    made = patch(model)
    assert model.config._attn_implementation == "dosa"
    again = patch(model, "native")
    assert not made.active
    assert again.active
    unpatch(model)
    unpatch(model)
    assert model.config._attn_implementation == "sdpa"
    assert {name: set(module.__dict__) for name, module in model.named_modules()} == before


def test_copies_are_patched_by_themselves() -> None:
    model = dsa_models.make("glm_moe_dsa")
    made = patch(model, "native")
    other = copy.deepcopy(model)
    other(**dsa_models.tokens(100))
    assert not made.calls
    assert other._dosa_patch.calls["native"]


@pytest.mark.parametrize("value", ["transformers", "vllm, Transformers", "all"])
def test_off_switch(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = dsa_models.make("glm_moe_dsa")
    monkeypatch.setenv("DOSA_DISABLE", value)
    made = patch(model)
    assert not made.active
    assert made.problem == "switched off by DOSA_DISABLE"
    assert model.config._attn_implementation == "sdpa"
    monkeypatch.setenv("DOSA_DISABLE", "vllm")
    assert patch(model).active
    assert patch(model, enabled=False).problem == "enabled=False"


@pytest.mark.parametrize("version", ["5.16.1", "5.25.0", "4.57.6", "unknown"])
def test_other_releases(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = dsa_models.make("glm_moe_dsa")
    # transformers replaces its module while it loads: the one in use is the one patched.
    monkeypatch.setattr(sys.modules["transformers"], "__version__", version)
    expected = f"transformers: found {version}, expected 5.17 or later, below 5.25"
    with pytest.warns(IntegrationWarning, match=expected):
        made = patch(model)
    assert not made.active
    assert "forward" not in dsa_models.indexers(model)[0].__dict__


def test_another_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    model = dsa_models.make("glm_moe_dsa")

    def forward(self: Any, hidden_states: Any, other: Any) -> None:
        pass

    monkeypatch.setattr(type(dsa_models.indexers(model)[0]), "forward", forward)
    with pytest.warns(IntegrationWarning, match=r"forward: found \(hidden_states, other\), ex"):
        assert not patch(model).active


def test_a_forward_that_is_not_the_class_s_own() -> None:
    model = dsa_models.make("glm_moe_dsa")
    module = dsa_models.indexers(model)[1]
    module.forward = module.forward
    with pytest.warns(IntegrationWarning, match="expected the class's own"):
        assert not patch(model).active


def test_a_missing_part(monkeypatch: pytest.MonkeyPatch) -> None:
    model = dsa_models.make("deepseek_v32")
    del dsa_models.indexers(model)[0].softmax_scale
    with pytest.warns(IntegrationWarning, match="found no softmax_scale"):
        assert not patch(model).active


def test_blocks_need_sdpa() -> None:
    model = dsa_models.make("deepseek_v32", "eager")
    with pytest.warns(IntegrationWarning, match="attention: found 'eager', expected 'sdpa'"):
        assert not patch(model, attention="blocks").active


def test_misuse() -> None:
    model = dsa_models.make("glm_moe_dsa")
    cases: list[tuple[Any, dict[str, Any], type[Error], str]] = [
        (object(), {}, ArgumentTypeError, "model: found object, expected a model of transf"),
        (model, {"mode": "fp4"}, ArgumentError, "mode: found 'fp4', expected one of fp8, nat"),
        (model, {"attention": "x"}, ArgumentError, "attention: found 'x', expected one of"),
        (model, {"scale_format": None}, ArgumentError, "scale_format: found None, expected"),
        (model, {"rows": 0}, ArgumentError, "rows: found 0, expected an integer of at least"),
        (model, {"mib": 0.5}, ArgumentError, "mib: found 0.5, expected an integer of at le"),
    ]
    for given, options, error, message in cases:
        with pytest.raises(error, match=f"^{message}"):
            patch(given, **options)
    config = transformers.LlamaConfig(
        vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    with pytest.raises(ArgumentError, match=r"^model: found model type 'llama', expected a mod"):
        patch(transformers.LlamaModel(config))
