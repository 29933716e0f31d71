# SPDX-License-Identifier: Apache-2.0
"""The caller's stream, nobody waiting, CUDA graphs, torch.compile."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

import dosa
from device_inputs import NEEDED, normal, torch

pytestmark = [NEEDED, pytest.mark.filterwarnings("default")]

K = 100
LONG = 2_000_000_000  # cycles of a kernel that waits: about a second


@pytest.fixture(scope="module", autouse=True)
def _operators() -> Iterator[None]:
    importlib.import_module("dosa.torch")
    yield
    torch._dynamo.reset()


def test_calls_return_before_the_work_is_done() -> None:
    given = normal(70, 30_000)
    expected = dosa.topk(*given, K).indices
    scores = dosa.scores(*given)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        found = dosa.topk(*given, K).indices
        values = dosa.scores(*given)
        assert not stream.query(), "a call waited for its stream"
    stream.synchronize()
    assert torch.equal(found, expected)
    assert torch.equal(values, scores)


def test_work_is_ordered_on_the_current_stream() -> None:
    """Inputs that a kernel before writes on the same stream are seen; no other stream waits."""
    given = normal(70, 30_000)
    late = [tensor.clone() for tensor in given]
    late[2].zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        torch.cuda._sleep(LONG // 10)
        late[2].copy_(given[2])
        found = dosa.topk(*late, K).indices
        torch.cuda.current_stream().synchronize()
    assert torch.equal(found, dosa.topk(*given, K).indices)


def test_one_indexer_on_two_streams() -> None:
    given = [normal(70, 30_000, seed=seed) for seed in range(2)]
    expected = [dosa.topk(*arrays, K).indices for arrays in given]
    torch.cuda.synchronize()
    indexer = dosa.Indexer()
    streams = [torch.cuda.Stream() for _ in given]
    found: list[Any] = []
    for _ in range(5):
        for stream, arrays in zip(streams, given, strict=True):
            with torch.cuda.stream(stream):
                found.append(indexer.topk(*arrays, K).indices)
    torch.cuda.synchronize()
    for place, ids in enumerate(found):
        assert torch.equal(ids, expected[place % 2])


@pytest.mark.parametrize("call", ["function", "indexer", "operator"])
def test_capture_and_replay(call: str) -> None:
    given = normal(70, 30_000)
    indexer = dosa.Indexer()

    def select() -> Any:
        if call == "operator":
            return torch.ops.dosa.topk(*given, K)
        return (dosa if call == "function" else indexer).topk(*given, K).indices

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        select()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = select()
    for seed in range(1, 5):
        for old, new in zip(given, normal(70, 30_000, seed=seed), strict=True):
            old.copy_(new)
        found.fill_(-7)
        graph.replay()
        assert torch.equal(found, dosa.topk(*given, K, mode="base").indices)


def test_two_graphs_share_an_indexer() -> None:
    """Each has a workspace in its own memory: larger calls in between do not disturb it."""
    indexer = dosa.Indexer()
    given = [normal(70, keys) for keys in (2000, 60_000)]
    for arrays in given:
        indexer.topk(*arrays, K)
    torch.cuda.synchronize()
    graphs, found = [], []
    for arrays in given:
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]):
            found.append(indexer.topk(*arrays, K).indices)
    indexer.release()
    other = normal(500, 90_000)
    expected = indexer.topk(*other, K).indices
    for _ in range(3):
        for graph in graphs:
            graph.replay()
        assert torch.equal(indexer.topk(*other, K).indices, expected)
    for ids, arrays in zip(found, given, strict=True):
        assert torch.equal(ids, dosa.topk(*arrays, K).indices)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor", "cudagraphs"])
def test_compile_without_a_break(backend: str) -> None:
    def select(*given: Any) -> Any:
        ids, values = torch.ops.dosa.topk_with_scores(*given, K)
        return ids + 1, values * 2

    compiled = torch.compile(select, fullgraph=True, backend=backend, dynamic=False)
    for seed in range(3):
        given = normal(33, 5000, seed=seed)
        found, values = compiled(*given)
        expected = dosa.topk(*given, K, scores=True)
        assert torch.equal(found, expected.indices + 1)
        assert torch.equal(values.nan_to_num(1), (expected.scores * 2).nan_to_num(1))


def test_compile_with_other_shapes() -> None:
    compiled = torch.compile(
        lambda *given: torch.ops.dosa.topk(*given, K),
        fullgraph=True,
        backend="aot_eager",
        dynamic=True,
    )
    for queries, keys in ((3, 300), (9, 4000), (2, 50)):
        given = normal(queries, keys, causal=False)
        assert torch.equal(compiled(*given), dosa.topk(*given, K).indices)


@pytest.mark.parametrize("name", ["topk", "topk_with_scores", "scores"])
def test_operators_are_what_they_say(name: str) -> None:
    given = normal(6, 400, causal=False)
    given[0], given[1] = given[0].view(torch.uint8), given[1].view(torch.uint8)
    arguments = given + ([K] if name != "scores" else [])
    result = torch.library.opcheck(getattr(torch.ops.dosa, name).default, arguments)
    assert set(result.values()) == {"SUCCESS"}
