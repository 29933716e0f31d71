# SPDX-License-Identifier: Apache-2.0
"""bench/retrieval.py: questions at the end repeat passages that are there, at all distances."""

from __future__ import annotations

import importlib.util
import math
from array import array
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def retrieval() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "bench" / "retrieval.py"
    if not path.is_file():
        pytest.skip("the sources are not here")
    spec = importlib.util.spec_from_file_location("retrieval", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_question_repeats_its_passage(retrieval: ModuleType) -> None:
    text = array("h", (n * 7919 % 32749 for n in range(70_000)))
    task, passages = retrieval.build(text, 65_536, 32, 3)
    assert len(task) == 65_536
    assert len(passages) == 32
    questions = len(task) - 64 * 32
    assert sorted(task[:questions]) != list(task[:questions])
    for n, begin in enumerate(passages):
        at = questions + 64 * n
        assert begin + 64 <= questions
        assert task[at : at + 64] == task[begin : begin + 64]


def test_passages_are_near_and_far(retrieval: ModuleType) -> None:
    text = array("h", (n % 8192 for n in range(1 << 18)))
    tokens = 1 << 18
    _, passages = retrieval.build(text, tokens, 256, 1)
    length = tokens - 64 * 256
    distances = sorted(length - begin for begin in passages)
    middle = math.sqrt(4096 * length)
    assert 0.7 * middle < distances[128] < 1.4 * middle
    assert distances[0] < 5000
    assert distances[-1] > 0.9 * length


def test_the_same_seed_gives_the_same_task(retrieval: ModuleType) -> None:
    text = array("h", (n % 8192 for n in range(70_000)))
    one = retrieval.build(text, 65_536, 16, 5)
    assert one == retrieval.build(text, 65_536, 16, 5)
    assert one != retrieval.build(text, 65_536, 16, 6)


def test_too_little_text_is_refused(retrieval: ModuleType) -> None:
    with pytest.raises(SystemExit, match="found 100 tokens of text"):
        retrieval.build(array("h", range(100)), 65_536, 16, 1)
