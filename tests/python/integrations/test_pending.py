# SPDX-License-Identifier: Apache-2.0
"""Logits that are not computed unless wanted, and what keeps an adapter from being installed."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dosa.integrations import IntegrationWarning, _pending  # noqa: E402
from dosa.integrations._engine import engine_problem  # noqa: E402
from serving import Batch, K  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def batch() -> Batch:
    return Batch()


class TestPending:
    def test_logits_are_computed_once_and_only_when_wanted(self, batch: Batch) -> None:
        computed = []

        def compute() -> Any:
            computed.append(1)
            return torch.ones((batch.rows, batch.keys))

        operands = _pending.Operands(*batch.tensors())
        pending = _pending.PendingLogits(operands, compute, batch.keys)
        assert pending.shape == (batch.rows, batch.keys)
        assert (pending.stride(0), pending.stride(1)) == (batch.keys, 1)
        assert not pending.computed
        made = _pending.Installed("test")
        found = _pending.select(pending, K, made, "by test", index_form="relative")
        assert made.calls == {"by test": 1}
        np.testing.assert_array_equal(found.numpy(), batch.relative)
        assert not computed
        assert pending.tensor() is pending.tensor()
        assert len(computed) == 1

    def test_a_call_that_the_engine_refuses(self, batch: Batch) -> None:
        operands = _pending.Operands(*batch.tensors())
        pending = _pending.PendingLogits(operands, operands.weights.clone, batch.keys)
        made = _pending.Installed("test")
        assert _pending.select(pending, 9000, made, "by test", index_form="relative") is None
        assert made.fallbacks == {"refused: topk: found 9000, expected 1 to 8192": 1}
        assert not made.calls

    def test_what_the_engine_does_not_take(self, batch: Batch) -> None:
        operands = _pending.Operands(*batch.tensors())
        assert _pending.cannot(operands, None) is None
        assert "no float8_e4m3fn" in str(_pending.cannot(operands, torch.ones(1)))
        packed = operands._replace(k=operands.k.view(torch.int8))
        assert "no float8_e4m3fn" in str(_pending.cannot(packed, None))
        narrow = operands._replace(weights=operands.weights.bfloat16())
        assert _pending.cannot(narrow, None) == "weights of torch.bfloat16"
        assert engine_problem("meta") == "device: found meta, expected cpu or cuda"


@pytest.mark.parametrize("name", ["vllm", "sglang"])
class TestInstalling:
    def found(self, name: str, version: str, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setattr("importlib.metadata.version", lambda _: version)
        return importlib.import_module(f"dosa.integrations.{name}")

    def test_off_switch(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        module = self.found(name, "9.9", monkeypatch)
        assert module.install(enabled=False).problem == "enabled=False"
        monkeypatch.setenv("DOSA_DISABLE", name)
        assert module.install().problem == "switched off by DOSA_DISABLE"

    def test_another_release(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        module = self.found(name, "9.9", monkeypatch)
        with pytest.warns(IntegrationWarning, match=f"{name}: found 9.9, expected"):
            assert not module.install().active

    @pytest.mark.skipif(engine_problem("cuda") is None, reason="there is a CUDA engine")
    def test_without_an_engine_for_the_device(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        version = {"vllm": "0.33.0", "sglang": "0.5.23"}[name]
        module = self.found(name, version, monkeypatch)
        with pytest.warns(
            IntegrationWarning, match=r"found no (device engine|CUDA device)|found compute cap"
        ):
            assert not module.install().active
