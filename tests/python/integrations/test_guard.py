# SPDX-License-Identifier: Apache-2.0
"""What integrations share, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dosa.integrations import IntegrationWarning, _guard


@pytest.mark.parametrize(
    ("value", "off"),
    [("", False), ("vllm", False), ("vllm,sglang", True), (" SGLang ,x", True), ("all", True)],
)
def test_off_switch(value: str, off: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOSA_DISABLE", value)
    assert _guard.disabled("sglang") is off


@pytest.mark.parametrize(
    ("version", "inside"),
    [
        ("5.17", True),
        ("5.17.0rc1", True),
        ("5.24.9.post1", True),
        ("5.16.9", False),
        ("5.25", False),
        ("6.0", False),
        ("", False),
        ("dev", False),
    ],
)
def test_range_of_releases(version: str, inside: bool) -> None:
    problem = _guard.version_problem("p", version, (5, 17), (5, 25))
    expected = None if inside else f"p: found {version}, expected 5.17 or later, below 5.25"
    assert problem == expected


def test_stepping_aside_is_seen() -> None:
    with pytest.warns(
        IntegrationWarning, match=r"^dosa\.integrations\.x steps aside, .*: because$"
    ):
        _guard.step_aside("x", "because")


@pytest.mark.parametrize("name", ["transformers", "vllm", "sglang"])
def test_import_takes_nothing_along(name: str) -> None:
    code = f"""
import sys, dosa.integrations.{name}
print(*[m for m in ("numpy", "torch", "transformers", "vllm", "sglang") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
