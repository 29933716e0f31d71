# SPDX-License-Identifier: Apache-2.0
"""Calls over ranks that are threads: the bytes of one rank, whatever the sharding."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import dosa
import dosa.distributed as dd
import oracle
from dosa import _rounds
from dosa._exchange import Exchange
from dosa._shards import count_reaching, quantile_ranks
from ranks import KINDS, Array, ThreadTransport, cut, over_keys, run_failing, run_ranks, sharding

SIZES = (1, 2, 3, 8)


@pytest.fixture(params=["direct", "owners"])
def rounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both protocols on inputs of any size."""
    monkeypatch.setattr(_rounds, "DIRECT_BYTES", 2**40 if request.param == "direct" else -1)
    return str(request.param)


def same(found: Array, expected: Array) -> None:
    """Equal bytes, NaN payloads included."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def on_ranks(size: int, inputs: oracle.Inputs, kind: str, kept: int, **more: Any) -> list[Any]:
    """What each rank finds on its shard."""
    return run_ranks(size, lambda t: over_keys(inputs, kind, t, kept, **more))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_sharded_keys(kind: str, size: int, rounds: str) -> None:
    for kept, keys in ((5, 100), (64, 100), (30, 7), (1, 3)):
        inputs = oracle.integers(kept + size, queries=5, keys=keys)
        ids, values = oracle.topk(inputs, kept)
        one = dosa.topk(*inputs, kept, scores=True)
        for found in on_ranks(size, inputs, kind, kept, scores=True):
            same(found.indices, ids)
            np.testing.assert_array_equal(found.scores, values)
            same(found.scores, one.scores)
            assert found.rows == (0, 5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("order", ["id", "score"])
def test_what_each_rank_wants(size: int, order: str, rounds: str) -> None:
    inputs = oracle.integers(31, queries=6, keys=130)
    ids, values = oracle.topk(inputs, 17, order=order)
    for kind in ("pages", "uneven"):

        def call(transport: ThreadTransport, kind: str = kind, **more: Any) -> Any:
            return over_keys(inputs, kind, transport, 17, order=order, scores=True, **more)

        parts = run_ranks(size, lambda t: call(t, result="rows"))
        assert [row for part in parts for row in range(*part.rows)] == list(range(6))
        same(np.concatenate([part.indices for part in parts]), ids)
        np.testing.assert_array_equal(np.concatenate([part.scores for part in parts]), values)
        shards = cut(kind, 130, size)
        for own, part in zip(
            shards,
            run_ranks(size, lambda t: call(t, result="local")),
            strict=True,
        ):
            mine = np.isin(ids, own)
            for row in range(6):
                count = int(mine[row].sum())
                assert part.indices[row].tolist() == [*ids[row][mine[row]], *[-1] * (17 - count)]
                np.testing.assert_array_equal(part.scores[row, :count], values[row][mine[row]])
                assert np.all(np.isnan(part.scores[row, count:]))


def test_scores_only_where_asked_for(rounds: str) -> None:
    inputs = oracle.integers(1, queries=4)
    for found in on_ranks(2, inputs, "contiguous", 9):
        assert found.scores is None
        same(found.indices, oracle.topk(inputs, 9)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_tie_over_all_ranks(kind: str, rounds: str) -> None:
    """1000 keys, 10 above a tie of 990 in which the cutoff falls: the lowest ids win."""
    inputs = oracle.integers(2, queries=3, heads=1, keys=1000, plain=True)
    inputs.q[:], inputs.k[:], inputs.weights[:] = 0x38, 0x38, 1
    inputs.k_scale[:] = 1
    inputs.k_scale[::100] = 2
    expected = sorted([*range(0, 1000, 100), *[i for i in range(1000) if i % 100][:190]])
    for found in on_ranks(8, inputs, kind, 200):
        assert found.indices.tolist() == [expected] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_scores_that_are_no_numbers(kind: str, rounds: str) -> None:
    inputs = oracle.reals(5, queries=4, heads=4, dim=32, keys=300)
    inputs.k_scale[::7] = np.nan
    inputs.k_scale[1::7] = np.inf
    inputs.k_scale[2::7] = -np.inf
    inputs.k_scale[3::7] = -0.0
    inputs.k_scale[4::7] *= -1
    inputs.weights[1] = 0
    for kept in (20, 170, 260):
        one = dosa.topk(*inputs, kept, scores=True)
        for found in on_ranks(4, inputs, kind, kept, scores=True):
            same(found.indices, one.indices)
            same(found.scores, one.scores)


def test_a_trace(trace: dosa.Trace, rounds: str) -> None:
    inputs = oracle.Inputs(*trace)
    one = dosa.topk(*trace, 256, scores=True)
    for kind in ("contiguous", "pages"):
        for found in on_ranks(4, inputs, kind, 256, scores=True):
            same(found.indices, one.indices)
            same(found.scores, one.scores)


def test_no_rows_and_no_keys(rounds: str) -> None:
    for queries, keys in ((0, 10), (3, 0), (0, 0), (1, 1)):
        inputs = oracle.integers(9, queries=queries, keys=keys, plain=True)
        for found in on_ranks(3, inputs, "round robin", 4):
            same(found.indices, oracle.topk(inputs, 4)[0])


def over_rows(inputs: oracle.Inputs, transport: Any, topk: int, **more: Any) -> Any:
    return dd.topk_over_rows(*inputs, topk, transport=transport, threads=1, **more)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("queries", [0, 1, 5, 20])
def test_sharded_rows(size: int, queries: int) -> None:
    inputs = oracle.integers(queries, queries=queries, keys=90)
    ids, values = oracle.topk(inputs, 12)
    for found in run_ranks(size, lambda t: over_rows(inputs, t, 12, scores=True)):
        same(found.indices, ids)
        np.testing.assert_array_equal(found.scores, values)
    parts = run_ranks(size, lambda t: over_rows(inputs, t, 12, result="rows"))
    same(np.concatenate([part.indices for part in parts]), ids)
    assert [row for part in parts for row in range(*part.rows)] == list(range(queries))


def test_sharded_rows_in_every_form() -> None:
    inputs = oracle.integers(3, queries=20, keys=90)
    offset = np.arange(20, dtype=np.int32)
    table = np.random.default_rng(0).permutation(20 * 25).reshape(20, 25).astype(np.int32)
    forms: list[dict[str, Any]] = [
        {"index_form": "relative", "order": "score"},
        {"index_form": "offset", "index_offset": offset, "forced_first": 2},
        {"index_form": "slot", "page_table": table, "page_size": 4},
        {"index_form": "slot", "page_table": table[0], "page_size": 4, "forced_last": 3},
    ]
    for form in forms:
        one = dosa.topk(*inputs, 12, **form)
        for found in run_ranks(3, lambda t: over_rows(inputs, t, 12, **form)):  # noqa: B023
            same(found.indices, one.indices)


def every(found: list[Any], kind: type[Exception], text: str) -> None:
    """All ranks raised that."""
    assert [type(error) for error in found] == [kind] * len(found), found
    for error in found:
        assert re.search(text, str(error)), error


SPOILT: dict[str, tuple[str, Any]] = {
    "Q": ("q", lambda a: a[:-1]),
    "q": ("q", lambda a: np.where(a == 0, 0x40, a).astype(np.uint8)),
    "weights": ("weights", lambda a: a + 1),
    "k_start": ("k_start", lambda a: a + 1),
    "k_end": ("k_end", lambda a: a - 1),
}


@pytest.mark.parametrize("name", SPOILT)
@pytest.mark.parametrize(
    "call", [lambda i, t: over_keys(i, "pages", t, 9), lambda i, t: over_rows(i, t, 9)]
)
def test_ranks_that_disagree(name: str, call: Any) -> None:
    field, spoil = SPOILT[name]

    def work(transport: ThreadTransport) -> Any:
        inputs = oracle.integers(4, queries=5, keys=70)
        if transport.rank == 2:
            setattr(inputs, field, spoil(getattr(inputs, field)))
            if name == "Q":
                inputs.weights, inputs.k_start = inputs.weights[:-1], inputs.k_start[:-1]
                inputs.k_end = inputs.k_end[:-1]
        return call(inputs, transport)

    text = rf"^{name}: found .*on rank 2 .*on? .*rank 0.*, expected the same on all ranks$"
    every(run_failing(3, work), dosa.ArgumentError, text)


@pytest.mark.parametrize(
    ("name", "value"), [("order", "score"), ("scores", True), ("result", "local"), ("topk", 8)]
)
def test_ranks_that_want_different_things(name: str, value: Any) -> None:
    inputs = oracle.integers(4, queries=5, keys=70)

    def work(transport: ThreadTransport) -> Any:
        more = {name: value} if transport.rank == 1 else {}
        return over_keys(inputs, "pages", transport, **{"topk": 9, **more})

    every(
        run_failing(3, work), dosa.ArgumentError, f"^{name}: found .* on rank 1 and .* on rank 0,"
    )


def test_ranks_that_shard_differently() -> None:
    inputs = oracle.integers(4, queries=5, keys=70)

    def work(transport: ThreadTransport) -> Any:
        kind = "pages" if transport.rank == 1 else "round robin"
        return over_keys(inputs, kind, transport, 9)

    every(
        run_failing(3, work), dosa.ArgumentError, "^page_size: found 16 on rank 1 and 1 on rank 0"
    )

    def wrong_rank(transport: ThreadTransport) -> Any:
        own = cut("pages", 70, 3)[(transport.rank + 1) % 3]
        return dd.topk_over_keys(
            inputs.q,
            inputs.k[own],
            inputs.k_scale[own],
            inputs.weights,
            topk=9,
            sharding=sharding("pages", own),
            transport=transport,
        )

    every(run_failing(3, wrong_rank), dosa.ArgumentError, "^k: found .* keys on rank 0, 70 in all,")


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "k_scale": ({"k_scale": np.ones(3, np.float64)}, dosa.ArgumentTypeError, "^k_scale: found"),
    "topk": ({"topk": 0}, dosa.ArgumentError, "^topk: found 0, expected 1 to 8192"),
    "sharding": ({"sharding": "pages"}, dosa.ArgumentTypeError, "^sharding: found str"),
    "result": ({"result": "some"}, dosa.ArgumentError, "^result: found 'some'"),
    "index_form": ({"index_form": "slot"}, dosa.ArgumentError, "^index_form: found 'slot'"),
    "forced": ({"forced_last": 2}, dosa.ArgumentError, "^forced_last: found 2, expected 0"),
    "heads": ({"heads": 99}, dosa.ArgumentError, "^heads: found 99"),
}


@pytest.mark.parametrize("name", BAD)
def test_one_rank_fails(name: str, rounds: str) -> None:
    """It raises what was wrong, the others that it failed; also where it fails late (heads)."""
    more, kind, text = BAD[name]
    inputs = oracle.integers(6, queries=5, keys=60)

    def work(transport: ThreadTransport) -> Any:
        own = cut("contiguous", 60, 3)[transport.rank]
        given: dict[str, Any] = {
            "q": inputs.q,
            "k": inputs.k[own],
            "k_scale": inputs.k_scale[own],
            "weights": inputs.weights,
            "topk": 9,
            "sharding": dd.Contiguous(),
            "transport": transport,
            **(more if transport.rank == 1 else {}),
        }
        return dd.topk_over_keys(**given)

    found = run_failing(3, work)
    every([found[1]], kind, text)
    every([found[0], found[2]], dd.RankError, rf"^rank 1: found {kind.__name__}: .*no failure$")


def test_a_rank_that_stands_still() -> None:
    inputs = oracle.integers(6, queries=5, keys=60)

    def work(transport: ThreadTransport) -> Any:
        return None if transport.rank == 1 else over_keys(inputs, "pages", transport, 9)

    found = run_failing(3, work, timeout=0.2)
    every([found[0], found[2]], dd.RankError, "found no answer")


def test_arguments_that_no_round_needs() -> None:
    inputs = oracle.integers(6, queries=5, keys=60)
    for timeout, kind in ((0, dosa.ArgumentError), ("1", dosa.ArgumentTypeError)):
        with pytest.raises(kind, match=r"^timeout: found"):
            dd.topk_over_rows(*inputs, 9, timeout=timeout)


def test_the_traffic_that_is_reported(rounds: str) -> None:
    """What the calls say they received is what the transport carried."""
    inputs = oracle.integers(7, queries=40, keys=600)
    for result in ("all", "rows", "local"):

        def work(transport: ThreadTransport, result: str = result) -> Any:
            found = over_keys(inputs, "pages", transport, 64, result=result)
            assert found.traffic.received == transport.received
            return found.traffic

        traffic = run_ranks(4, work)
        assert sum(one.sent for one in traffic) == sum(one.received for one in traffic)


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("result", ["all", "local", "rows"])
def test_the_cost_that_is_documented(
    size: int, result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/distributed.md, Rounds: bytes per row and rank, with the candidates as counted."""
    rows, kept = 64, 512
    candidates = []

    def count(*inputs: Any) -> Any:
        found = count_reaching(*inputs)
        candidates.append(found.sum() / rows)
        return found

    monkeypatch.setattr(_rounds, "DIRECT_BYTES", -1)
    monkeypatch.setattr(_rounds, "count_reaching", count)

    def work(transport: ThreadTransport) -> float:
        rng = np.random.default_rng(transport.rank)
        scores = -np.sort(rng.exponential(size=(rows, kept)).astype(np.float32), axis=1)
        ids = np.tile(np.arange(kept, dtype=np.int32) * size + transport.rank, (rows, 1))
        exchange = Exchange(transport)
        _rounds.merge_ranks(exchange, scores, ids, _rounds.Wanted(kept, "id", False, result))
        assert transport.received == exchange.traffic.received
        notes = exchange.traffic.rounds * 120 * (size - 1)
        return (transport.received - notes) / rows

    received = np.mean(run_ranks(size, work))
    places = len(quantile_ranks(kept, size))
    last = {"all": 4 * kept, "local": 8, "rows": 0}[result]
    share = (size - 1) / size
    formula = share * (4 * places + 4 + 4 + 8 * sum(candidates) / size + last)
    assert abs(received / formula - 1) < 0.02
    assert sum(candidates) < 1.25 * kept
