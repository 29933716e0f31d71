# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

import dosa

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def trace_path() -> Path:
    return ROOT / "tests" / "data" / "code_small.safetensors"


@pytest.fixture(scope="session")
def trace(trace_path: Path) -> dosa.Trace:
    return dosa.load(trace_path)
