# SPDX-License-Identifier: Apache-2.0
"""Drawn calls of the Python surface: any array, any option, any sequence of calls.

A call answers as the oracle does, whatever the layout, or is refused with one line that names what
was wrong; nothing else may happen.
"""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import dosa
import oracle
from dosa import _options

MODES = get_args(_options.Mode)
NAMES = ("q", "k", "k_scale", "weights", "k_start", "k_end")

extents = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "queries": st.integers(0, 5),
        "heads": st.integers(1, 18),
        "dim": st.sampled_from([16, 32, 48, 128]),
        "keys": st.integers(0, 200),
    }
)


def padded(array: Any, front: int, behind: int) -> Any:
    """The same values as a view of a larger array, whose other elements are all ones in bits."""
    shape = (array.shape[0], *array.shape[1:-1], array.shape[-1] + front + behind)
    store = np.full(np.prod(shape) * array.itemsize, 0xFF, np.uint8).view(array.dtype)
    view = store.reshape(shape)[..., front : front + array.shape[-1]]
    view[...] = array
    return view


@st.composite
def laid_out(draw: st.DrawFn) -> tuple[oracle.Inputs, list[Any]]:
    """Inputs, and the same in drawn layouts: rows apart, read only, of other byte types."""
    inputs = oracle.integers(**draw(extents))
    arrays = []
    for name, array in zip(NAMES, inputs, strict=True):
        if array.ndim == 2 and name in ("k", "weights") and draw(st.booleans()):
            array = padded(array, draw(st.integers(0, 3)), draw(st.integers(0, 5)))  # noqa: PLW2901
        if draw(st.booleans()):
            array = array.view()  # noqa: PLW2901
            array.flags.writeable = False
        arrays.append(array)
    return inputs, arrays


@given(laid_out(), st.integers(1, 60), st.sampled_from(MODES), st.sampled_from(["id", "score"]))
@settings(max_examples=150 * oracle.SCALE, deadline=None)
def test_layouts_do_not_matter(
    drawn: tuple[oracle.Inputs, list[Any]], kept: int, mode: Any, order: Any
) -> None:
    inputs, arrays = drawn
    before = [array.copy() for array in arrays]
    found = dosa.topk(*arrays, kept, scores=True, mode=mode, order=order, threads=1)
    ids, values = oracle.topk(inputs, kept, order=order)
    np.testing.assert_array_equal(found.indices, ids)
    np.testing.assert_array_equal(found.scores, values)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)


odd_numbers = st.one_of(
    st.integers(-(2**70), 2**70),
    st.sampled_from([-1, 0, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 8192, 8193]),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=3),
    st.binary(max_size=3),
)
odd_words = st.one_of(st.text(max_size=8), st.none(), st.integers(-3, 9), st.sampled_from(MODES))
NUMBERS = ["u1", "i1", "i2", "i4", "i8", "u4", "f2", "f4", "f8", "c8"]
dtypes = st.sampled_from([*NUMBERS, ">f4", ">i4", "S1", "?", "O", "M8[s]"])


@st.composite
def odd_arrays(draw: st.DrawFn) -> Any:
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(st.one_of(st.none(), st.text(max_size=3), st.lists(st.integers(), max_size=3)))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    array = np.zeros(shape, draw(dtypes))
    if kind == 2 and array.ndim > 0:
        return array[::-1]
    if kind == 3 and array.ndim > 1:
        return np.broadcast_to(array[:1], array.shape)
    return array


spoilt = st.dictionaries(st.sampled_from(NAMES), odd_arrays(), max_size=2)
spoilt_options = st.fixed_dictionaries(
    {},
    optional={
        "mode": odd_words,
        "threshold": odd_words,
        "order": odd_words,
        "index_form": odd_words,
        "heads": odd_numbers,
        "forced_first": odd_numbers,
        "forced_last": odd_numbers,
        "workspace_mib": odd_numbers,
        "threads": st.sampled_from([-1, 0, 1, 2, 1025, 1.5, "2", None]),
    },
)


def answer_or_line(arrays: list[Any], kept: Any, options: dict[str, Any]) -> Any:
    try:
        return dosa.topk(*arrays, kept, **options)
    except (dosa.Error, MemoryError) as error:
        return str(error)


@given(extents, spoilt, spoilt_options, st.one_of(st.integers(1, 60), odd_numbers))
@settings(max_examples=300 * oracle.SCALE, deadline=None)
def test_a_call_is_answered_or_refused_in_one_line(
    shape: dict[str, int], arrays: dict[str, Any], options: dict[str, Any], kept: Any
) -> None:
    inputs = oracle.integers(**shape)
    given_arrays = [arrays.get(name, value) for name, value in zip(NAMES, inputs, strict=True)]
    found = answer_or_line(given_arrays, kept, options)
    if isinstance(found, str):
        assert found
        assert "\n" not in found
        return
    assert found.indices.shape == (shape["queries"], int(kept))
    if arrays:  # the shapes fit by chance, or a window is left out
        return
    wanted = {
        name: options[name]
        for name in ("order", "forced_first", "forced_last")
        if options.get(name) is not None
    }
    ids, _ = oracle.topk(inputs, int(kept), **wanted)
    if options.get("index_form", "absolute") == "absolute":
        np.testing.assert_array_equal(found.indices, ids)


class IndexerMachine(RuleBasedStateMachine):
    """One indexer through any sequence of calls: each answer is that of a call of its own."""

    @initialize(mode=st.sampled_from(MODES), threads=st.integers(1, 2))
    def make(self, mode: Any, threads: int) -> None:
        self.indexer = dosa.Indexer(mode=mode, threads=threads)

    @rule(shape=extents, kept=st.integers(1, 40))
    def answers(self, shape: dict[str, int], kept: int) -> None:
        inputs = oracle.integers(**shape)
        found = self.indexer.topk(*inputs, topk=kept)
        np.testing.assert_array_equal(found.indices, oracle.topk(inputs, kept)[0])

    @rule(shape=extents, name=st.sampled_from(NAMES))
    def refuses(self, shape: dict[str, int], name: str) -> None:
        inputs = oracle.integers(**shape)
        setattr(inputs, name, np.zeros((1, 1, 1, 1), np.complex64))
        with pytest.raises(dosa.ArgumentTypeError):
            self.indexer.topk(*inputs, topk=3)

    @rule()
    def forgets(self) -> None:
        self.indexer.release()
        assert self.indexer.workspace_bytes == 0


TestIndexer = IndexerMachine.TestCase
TestIndexer.settings = settings(
    max_examples=30 * oracle.SCALE, stateful_step_count=12, deadline=None
)
