# SPDX-License-Identifier: Apache-2.0
"""Selections against the oracle."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dosa
import oracle
from dosa import _options

MODES = get_args(_options.Mode)


@st.composite
def cases(draw: st.DrawFn) -> tuple[oracle.Inputs, int, dict[str, Any]]:
    inputs = oracle.integers(
        seed=draw(st.integers(0, 2**32 - 1)),
        queries=draw(st.integers(0, 6)),
        heads=draw(st.integers(1, 20)),
        dim=16 * draw(st.integers(1, 4)),
        keys=draw(st.integers(0, 300)),
        plain=draw(st.booleans()),
    )
    options = {
        "mode": draw(st.sampled_from(MODES)),
        "threshold": draw(st.sampled_from(["rising", "fixed"])),
        "order": draw(st.sampled_from(["id", "score"])),
        "forced_first": draw(st.sampled_from([0, 0, 1, 7])),
        "forced_last": draw(st.sampled_from([0, 0, 1, 7])),
        "threads": draw(st.sampled_from([0, 1, 2])),
    }
    return inputs, draw(st.integers(1, 80)), options


@given(cases())
@settings(max_examples=300 * oracle.SCALE, deadline=None)
def test_equals_the_oracle(case: tuple[oracle.Inputs, int, dict[str, Any]]) -> None:
    inputs, kept, options = case
    found = dosa.topk(*inputs, kept, scores=True, **options)
    wanted = {name: options[name] for name in ("order", "forced_first", "forced_last")}
    ids, values = oracle.topk(inputs, kept, **wanted)
    np.testing.assert_array_equal(found.indices, ids)
    assert found.scores is not None
    np.testing.assert_array_equal(found.scores, values)
    assert found.indices.dtype == np.int32
    assert found.scores.dtype == np.float32


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("heads", [8, 32, 64])
def test_modes_equal_the_oracle_where_pruning_works(mode: _options.Mode, heads: int) -> None:
    inputs = oracle.integers(7, queries=6, heads=heads, dim=128, keys=9000, plain=True)
    found = dosa.topk(*inputs, 500, mode=mode)
    ids, _ = oracle.topk(inputs, 500)
    np.testing.assert_array_equal(found.indices, ids)
    assert (found.stats.screened > 0) == (mode in ("screen", "dosa")) or mode == "auto"


def test_real_inputs_agree_with_their_own_scores() -> None:
    inputs = oracle.reals(3, queries=4, heads=24, dim=64, keys=3000)
    scores = dosa.scores(*inputs)
    wanted = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :200], axis=1)
    for mode in MODES:
        found = dosa.topk(*inputs, 200, mode=mode)
        np.testing.assert_array_equal(found.indices, wanted)


def test_scores_are_those_of_the_formula_up_to_rounding() -> None:
    inputs = oracle.reals(5, queries=3, heads=32, dim=128, keys=500)
    exact = oracle.scores(inputs)
    lengths = np.linalg.norm(oracle.decode(inputs.q), axis=2)
    natural = (np.abs(inputs.weights) * lengths).sum(1)[:, None] * (
        np.linalg.norm(oracle.decode(inputs.k), axis=1) * inputs.k_scale
    )
    roundings = 32 / 8 + 5  # (N2) of docs/numerics.md
    allowed = natural * roundings * 2.0**-24 * 1.001
    assert np.all(np.abs(dosa.scores(*inputs) - exact) <= allowed)


def test_scores_are_exact_on_exact_inputs_and_minus_infinity_outside() -> None:
    inputs = oracle.integers(11, queries=9, heads=5, dim=32, keys=70)
    found = dosa.scores(*inputs)
    position = np.arange(70)
    inside = (position >= inputs.k_start[:, None]) & (position < inputs.k_end[:, None])
    np.testing.assert_array_equal(found, np.where(inside, oracle.scores(inputs), -np.inf))
    np.testing.assert_array_equal(dosa.scores(*inputs, rows=(2, 5)), found[2:5])
    assert dosa.scores(*inputs, rows=(4, 4)).shape == (0, 70)


def test_index_forms() -> None:
    inputs = oracle.integers(13, queries=8, heads=4, dim=16, keys=90)
    kept = 20
    absolute = dosa.topk(*inputs, kept).indices
    valid = absolute >= 0
    start = np.clip(inputs.k_start, 0, 90)[:, None]
    relative = np.where(valid, absolute - start, -1)
    np.testing.assert_array_equal(dosa.topk(*inputs, kept, index_form="relative").indices, relative)
    offset = np.arange(8, dtype=np.int32) * 1000
    found = dosa.topk(*inputs, kept, index_form="offset", index_offset=offset).indices
    np.testing.assert_array_equal(found, np.where(valid, relative + offset[:, None], -1))
    size = 7
    table = np.random.default_rng(0).permutation(8 * 13).astype(np.int32).reshape(8, 13)
    position = np.where(valid, relative, 0)
    for pages in (table, table[0]):
        own = np.broadcast_to(pages, (8, 13))
        slots = np.take_along_axis(own, position // size, 1) * size + position % size
        found = dosa.topk(*inputs, kept, index_form="slot", page_table=pages, page_size=size)
        np.testing.assert_array_equal(found.indices, np.where(valid, slots, -1))


def dial(values: list[float]) -> tuple[Any, ...]:
    """Inputs of one query whose score of key i is values[i]; infinities are overflows."""
    weight = 2.0**100
    q = np.zeros((1, 2, 16), np.uint8)
    k = np.zeros((len(values), 16), np.uint8)
    q[0, 0, 0] = q[0, 1, 1] = 0x38
    for i, value in enumerate(values):
        k[i, 1 if np.signbit(value) else 0] = 0x38
    with np.errstate(invalid="ignore"):
        scale = np.where(np.isinf(values), weight, np.abs(values) / weight)
    return q, k, scale.astype(np.float32), np.array([[weight, -weight]], np.float32)


@pytest.mark.parametrize("mode", MODES)
def test_special_scores_rank_as_the_contract_says(mode: _options.Mode) -> None:
    nan, inf = float("nan"), float("inf")
    values = [1.0, nan, -inf, inf, 0.0, -0.0, -1.0, nan, 1.0, inf]
    ranked = [3, 9, 0, 8, 4, 5, 6, 2, 1, 7]
    for kept in range(1, 11):
        found = dosa.topk(*dial(values), topk=kept, order="score", mode=mode, scores=True)
        assert found.indices[0].tolist() == ranked[:kept]
        assert found.scores is not None
        np.testing.assert_array_equal(found.scores[0], np.array(values, "f")[ranked[:kept]])
        assert not np.any(np.signbit(found.scores[0]) & (found.scores[0] == 0))


def test_ties_go_to_lower_ids() -> None:
    found = dosa.topk(*dial([1.0] * 500), topk=100)
    assert found.indices[0].tolist() == list(range(100))


def test_default_window_is_all_keys() -> None:
    inputs = oracle.integers(17, keys=50, plain=True)
    found = dosa.topk(inputs.q, inputs.k, inputs.k_scale, inputs.weights, topk=9)
    np.testing.assert_array_equal(found.indices, dosa.topk(*inputs, 9).indices)


@pytest.mark.parametrize(("queries", "keys"), [(0, 10), (3, 0), (0, 0)])
def test_empty_inputs(queries: int, keys: int) -> None:
    inputs = oracle.integers(1, queries=queries, keys=keys)
    found = dosa.topk(*inputs, 4, scores=True)
    assert found.indices.shape == (queries, 4)
    assert np.all(found.indices == -1)
    assert found.scores is not None
    assert np.all(np.isnan(found.scores))
    assert found.rows.shape == (queries,)
    assert dosa.scores(*inputs).shape == (queries, keys)


def test_row_statistics_add_up_to_the_call() -> None:
    inputs = oracle.integers(19, queries=6, heads=16, dim=64, keys=6000, plain=True)
    inputs.k_end[2] = 40
    found = dosa.topk(*inputs, 300, mode="dosa")
    assert found.rows.dtype.names == tuple(name for name, _ in dosa.ROW_FIELDS)
    for name in ("visible", "screened", "fully_scored", "records", "rounds"):
        assert found.rows[name].sum() == getattr(found.stats, name)
    assert found.rows["visible"].tolist() == [6000, 6000, 40, 6000, 6000, 6000]
    assert found.stats.rows == 6
    assert found.stats.short_rows == 1
    assert found.stats.seconds > 0
    exact = oracle.scores(inputs)
    for row in (0, 5):
        assert found.rows["kth_score"][row] == np.sort(exact[row])[-300]
    counts = dosa.Counts()
    found = dosa.topk(*inputs, 300, mode="dosa", counts=counts)
    stats, rows = counts.read()
    assert stats == found.stats
    np.testing.assert_array_equal(rows, found.rows)


def test_a_trace_is_verified_and_explained(trace: dosa.Trace) -> None:
    report = dosa.verify(*trace, topk=256, mode="dosa")
    assert report.rows == 64
    assert report.rows_different == 0
    assert report.violations == 0
    assert report.rejected > 0
    assert report.min_margin >= 0
    certificate = dosa.explain(*trace, topk=256, row=7)
    scores = dosa.scores(*trace, rows=(7, 8))[0]
    visible = slice(trace.k_start[7], trace.k_end[7])
    assert np.all(certificate.bounds[visible] >= scores[visible])
    assert np.all(certificate.bounds[trace.k_end[7] :] == np.inf)
    assert certificate.valid
    assert len(certificate.role) == len(certificate.weight) == 32
    assert certificate.weight == tuple(trace.weights[7].tolist())
    assert sum(role == 1 for role in certificate.role) == certificate.num_retained
    counts = (certificate.num_positive, certificate.num_negative, certificate.num_zero)
    signs = np.sign(trace.weights[7])
    assert counts == ((signs > 0).sum(), (signs < 0).sum(), (signs == 0).sum())
    assert dosa.ROLES[1] == "retained"
