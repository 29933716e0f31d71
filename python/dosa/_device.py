# SPDX-License-Identifier: Apache-2.0
"""The calls on a CUDA device: enqueued on the caller's stream, nothing copied, nothing awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dosa import _core
from dosa._arrays import Element
from dosa._errors import ArgumentError, ArgumentTypeError, UnsupportedError
from dosa._libraries import Library, describe, library_of
from dosa._results import TopK

if TYPE_CHECKING:
    from dosa._counts import Counts
    from dosa._reports import DeviceVerification

_ELEMENTS: dict[str, Element] = {
    "q": "code",
    "k": "code",
    "k_scale": "float32",
    "weights": "float32",
    "k_start": "int32",
    "k_end": "int32",
    "index_offset": "int32",
    "page_table": "int32",
}


MAX_TOPK = 4096


class Selected:
    """The arrays that a selection writes: the caller's, or new ones."""

    def __init__(
        self, library: Library, shape: tuple[int, int], out: tuple[object, object], scores: bool
    ) -> None:
        self._library, self._out = library, out
        self._indices = library.empty(shape, "int32") if out[0] is None else out[0]
        wanted = out[1] is None and scores
        self._values = library.empty(shape, "float32") if wanted else out[1]

    def described(self) -> tuple[Any, Any]:
        """Return ids and scores as the extension takes them."""
        return (
            describe("indices", self._indices, "int32", self._library),
            describe("scores", self._values, "float32", self._library),
        )

    def result(self) -> TopK[Any]:
        """Return them as the caller gets them."""
        found = [
            array if array is None or array is given else self._library.finish(array)
            for array, given in zip((self._indices, self._values), self._out, strict=True)
        ]
        return TopK(found[0], found[1], None, None)


class Workspaces:
    """Workspaces that are kept, one for each device and stream.

    A call that is recorded in a CUDA graph takes one from the memory of the graph instead, which
    lives as long as the graph.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], tuple[int, Any]] = {}

    @property
    def bytes(self) -> int:
        """Bytes that are held now."""
        return sum(size for size, _ in self._kept.values())

    def clear(self) -> None:
        """Drop them all."""
        self._kept.clear()

    def take(self, library: Library, needed: int) -> Any:
        """Return uint8 memory of at least so many bytes on the device and stream of a call."""
        needed = max(needed, 1)
        if library.capturing():
            return library.empty((needed,), "uint8")
        place = (library.device, library.stream)
        size, memory = self._kept.get(place, (0, None))
        if size < needed:
            self._kept.pop(place, None)
            memory = library.empty((needed,), "uint8")
            self._kept[place] = (needed, memory)
        return memory


def problem_of(
    library: Library, arrays: tuple[object, ...], topk: int, page_size: int
) -> _core.DeviceProblem:
    """Check the arrays of a call."""
    q, k, k_scale, weights, k_start, k_end, index_offset, page_table = (
        describe(name, value, element, library)
        for (name, element), value in zip(_ELEMENTS.items(), arrays, strict=True)
    )
    return _core.DeviceProblem(
        q, k, k_scale, weights, k_start, k_end, index_offset, page_table, topk, page_size
    )


def given_outputs(out: object) -> tuple[object, object]:
    """Return the caller's arrays for ids and scores, None where there is none."""
    if not isinstance(out, (tuple, list)):
        return out, None
    if len(out) != 2:
        expected = "an array for ids, or a pair with one for scores"
        raise ArgumentTypeError.of("out", f"{type(out).__name__} of {len(out)}", expected)
    return out[0], out[1]


def refuse_progress(progress: object) -> None:
    """Nothing on the device reports how far it is."""
    if progress is not None:
        raise UnsupportedError("progress: found a function, expected None on the device")


def topk(
    options: _core.Options,
    workspaces: Workspaces,
    arrays: tuple[object, ...],
    topk: int,
    page_size: int,
    scores: bool,
    counts: Counts | None,
    out: tuple[object, object],
) -> TopK[Any]:
    """Enqueue a selection; arrays are the inputs of `dosa.topk` and its arrays of mapping."""
    library = library_of(arrays[0])
    problem = problem_of(library, arrays, topk, page_size)
    needed = _core.device_workspace_bytes(problem, options, False)
    selected = Selected(library, (problem.num_queries, topk), out, scores)
    counted: tuple[Any, Any] = (None, None)
    if counts is not None:
        counted = counts.allocate(library, problem.num_queries)
    _core.device_topk(
        problem,
        options,
        *selected.described(),
        *counted,
        describe("workspace", workspaces.take(library, needed), "code", library),
        library.stream,
    )
    return selected.result()


def verify(
    options: _core.Options, arrays: tuple[object, ...], topk: int
) -> tuple[str, DeviceVerification]:
    """Audit a call, and wait for it; arrays are the inputs of `dosa.verify`."""
    from dosa._reports import DeviceVerification

    library = library_of(arrays[0])
    problem = problem_of(library, (*arrays, None, None), topk, 1)
    _core.device_order_streams(library.stream, 0, library.device)  # where the audit works
    message, report = _core.device_verify(problem, options)
    return message, DeviceVerification(**report)


def merge(scores: object, ids: object, topk: int, order: int) -> tuple[Any, Any]:
    """Enqueue a merge; the arguments are those of `dosa.merge_topk`."""
    library = library_of(scores)
    lists = _core.DeviceLists(
        describe("scores", scores, "float32", library), describe("ids", ids, "int32", library)
    )
    if topk < 1:  # before the outputs are allocated
        raise ArgumentError.of("topk", str(topk), f"1 to {MAX_TOPK}")
    selected = Selected(library, (lists.num_rows, topk), (None, None), scores=True)
    _core.device_merge(lists, topk, order, *selected.described(), library.stream)
    found = selected.result()
    return found.indices, found.scores


def scores(
    options: _core.Options,
    workspaces: Workspaces,
    arrays: tuple[object, ...],
    rows: tuple[int, int] | None,
) -> Any:
    """Enqueue the scores of some rows; arrays are the inputs of `dosa.scores`."""
    from dosa._options import check_rows

    library = library_of(arrays[0])
    problem = problem_of(library, (*arrays, None, None), 1, 1)
    begin, end = check_rows(rows, problem.num_queries)
    needed = _core.device_workspace_bytes(problem, options, True)
    out = library.empty((end - begin, problem.num_keys), "float32")
    _core.device_scores(
        problem,
        options,
        begin,
        end,
        describe("out", out, "float32", library),
        describe("workspace", workspaces.take(library, needed), "code", library),
        library.stream,
    )
    return library.finish(out)
