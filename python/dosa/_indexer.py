# SPDX-License-Identifier: Apache-2.0
"""The calls: Top-K, scores, verification, the certificate of a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from dosa import _core, _device
from dosa._arrays import SupportsDLPack, empty, is_tensor, view
from dosa._counts import Counts
from dosa._decode import StepOptions, run_step
from dosa._errors import ArgumentError, ArgumentTypeError, CertificateError
from dosa._libraries import on_device
from dosa._options import Options, check_rows, int32, parse
from dosa._results import ROW_FIELDS, Stats, TopK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dosa._reports import Certificate, DeviceVerification, Verification

MAX_TOPK = 8192


class Mapping(TypedDict, total=False):
    """Keyword arguments of one call: what is returned, and how ids are mapped."""

    scores: bool
    counts: Counts | None
    index_offset: SupportsDLPack | None
    page_table: SupportsDLPack | None
    page_size: int
    out: object


class CallOptions(Options, Mapping, total=False):
    """All keyword arguments of `dosa.topk`."""


def _problem(  # the order is that of the arguments of every call
    q: object,
    k: object,
    k_scale: object,
    weights: object,
    k_start: object,
    k_end: object,
    topk: int,
    index_offset: object = None,
    page_table: object = None,
    page_size: int = 1,
) -> _core.Problem:
    return _core.Problem(
        view("q", q, "code"),
        view("k", k, "code"),
        view("k_scale", k_scale, "float32"),
        view("weights", weights, "float32"),
        view("k_start", k_start, "int32"),
        view("k_end", k_end, "int32"),
        view("index_offset", index_offset, "int32"),
        view("page_table", page_table, "int32"),
        int32("topk", topk),
        int32("page_size", page_size),
    )


def _check_mapping(options: _core.Options, index_offset: object, page_table: object) -> None:
    """Refuse an array that the index form does not use: a mistake, not a detail."""
    forms = {2: "index_offset", 3: "page_table"}
    for name, value in (("index_offset", index_offset), ("page_table", page_table)):
        needed = forms.get(options.index_form) == name
        if needed and value is None:
            form = "offset" if name == "index_offset" else "slot"
            raise ArgumentError.of(name, "None", f"an array, as index_form is {form!r}")
        if not needed and value is not None:
            form = "offset" if name == "index_offset" else "slot"
            raise ArgumentError.of(name, "an array", f"None unless index_form is {form!r}")


class Indexer:
    """Options and a workspace that is kept from call to call.

    The workspace grows to what the calls need, at most `workspace_mib` MiB, and is freed with the
    object or by `release`. One call at a time: give each thread its own Indexer. On a device there
    is one workspace for each stream. The results do not depend on earlier calls.

    Parameters
    ----------
    **options
        As for `dosa.topk`.

    Raises
    ------
    dosa.ArgumentError, dosa.ArgumentTypeError
        An option that does not exist, or a value that it does not take.

    Examples
    --------
    >>> import numpy as np, dosa
    >>> indexer = dosa.Indexer(mode="dosa", threads=1)
    >>> q = np.full((2, 1, 16), 0x38, np.uint8)  # e4m3 code of 1.0
    >>> k = np.array([[0x38] * 16, [0x40] * 16, [0x30] * 16], np.uint8)  # 1.0, 2.0, 0.5
    >>> ones = np.ones(3, np.float32)
    >>> indexer.topk(q, k, ones, np.ones((2, 1), np.float32), topk=2).indices
    array([[0, 1],
           [0, 1]], dtype=int32)
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        self._options, self._progress = parse(options)
        self._workspace = _core.Workspace()
        self._on_devices = _device.Workspaces()

    @property
    def workspace_bytes(self) -> int:
        """Bytes that are held now, on the host and on devices."""
        return self._workspace.bytes + self._on_devices.bytes

    def release(self) -> None:
        """Free the workspaces; the next call allocates them again."""
        self._workspace.clear()
        self._on_devices.clear()

    @overload
    def topk(
        self,
        q: NDArray[Any],
        k: SupportsDLPack,
        k_scale: SupportsDLPack,
        weights: SupportsDLPack,
        k_start: SupportsDLPack | None = None,
        k_end: SupportsDLPack | None = None,
        topk: int = 2048,
        **mapping: Unpack[Mapping],
    ) -> TopK[NDArray[Any]]: ...

    @overload
    def topk(
        self,
        q: SupportsDLPack,
        k: SupportsDLPack,
        k_scale: SupportsDLPack,
        weights: SupportsDLPack,
        k_start: SupportsDLPack | None = None,
        k_end: SupportsDLPack | None = None,
        topk: int = 2048,
        **mapping: Unpack[Mapping],
    ) -> TopK[Any]: ...

    def topk(
        self,
        q: SupportsDLPack,
        k: SupportsDLPack,
        k_scale: SupportsDLPack,
        weights: SupportsDLPack,
        k_start: SupportsDLPack | None = None,
        k_end: SupportsDLPack | None = None,
        topk: int = 2048,
        *,
        scores: bool = False,
        counts: Counts | None = None,
        index_offset: SupportsDLPack | None = None,
        page_table: SupportsDLPack | None = None,
        page_size: int = 1,
        out: object = None,
    ) -> TopK[Any]:
        """Return the K best keys of every query; arguments and results as for `dosa.topk`."""
        _check_mapping(self._options, index_offset, page_table)
        if counts is not None and not isinstance(counts, Counts):
            raise ArgumentTypeError.of("counts", type(counts).__name__, "dosa.Counts or None")
        given = _device.given_outputs(out)
        if on_device(q):
            _device.refuse_progress(self._progress)
            arrays = (q, k, k_scale, weights, k_start, k_end, index_offset, page_table)
            page_size, topk = int32("page_size", page_size), int32("topk", topk)
            return _device.topk(
                self._options, self._on_devices, arrays, topk, page_size, scores, counts, given
            )
        problem = _problem(
            q, k, k_scale, weights, k_start, k_end, topk, index_offset, page_table, page_size
        )
        if not 1 <= topk <= MAX_TOPK:  # before the outputs are allocated
            raise ArgumentError.of("topk", str(topk), f"1 to {MAX_TOPK}")
        shape = (problem.num_queries, topk)
        like = q if is_tensor(q) else None
        indices = empty(shape, "int32", like) if given[0] is None else given[0]
        values = empty(shape, "float32", like) if scores and given[1] is None else given[1]
        raw = empty((problem.num_queries, _core.ROW_STATS_BYTES), "uint8", None)
        found = _core.topk(
            problem,
            self._options,
            self._workspace,
            view("indices", indices, "int32"),
            view("scores", values, "float32"),
            raw,
            self._progress,
        )
        rows = raw.view(list(ROW_FIELDS)).reshape(-1)
        stats = Stats(**found)
        if counts is not None:
            counts.take(stats, rows)
        return TopK(indices, values, stats, rows)

    def paged_topk(
        self,
        q: SupportsDLPack,
        kv_cache: SupportsDLPack,
        weights: SupportsDLPack,
        context_lens: SupportsDLPack,
        block_table: SupportsDLPack,
        topk: int = 2048,
        **step: Unpack[StepOptions],
    ) -> TopK[Any]:
        """Return the K best tokens of every query of a decode step, as `dosa.paged_topk` does."""
        return run_step(
            self._options,
            (self._workspace, self._on_devices),
            (q, kv_cache, weights, context_lens, block_table),
            topk,
            step,
        )

    def scores(
        self,
        q: SupportsDLPack,
        k: SupportsDLPack,
        k_scale: SupportsDLPack,
        weights: SupportsDLPack,
        k_start: SupportsDLPack | None = None,
        k_end: SupportsDLPack | None = None,
        *,
        rows: tuple[int, int] | None = None,
    ) -> Any:
        """Return the score of every visible key; arguments and results as for `dosa.scores`."""
        if on_device(q):
            arrays = (q, k, k_scale, weights, k_start, k_end)
            return _device.scores(self._options, self._on_devices, arrays, rows)
        problem = _problem(q, k, k_scale, weights, k_start, k_end, 1)
        begin, end = check_rows(rows, problem.num_queries)
        out = empty((end - begin, problem.num_keys), "float32", q if is_tensor(q) else None)
        _core.scores(problem, self._options, self._workspace, begin, end, out)
        return out

    def verify(
        self,
        q: SupportsDLPack,
        k: SupportsDLPack,
        k_scale: SupportsDLPack,
        weights: SupportsDLPack,
        k_start: SupportsDLPack | None = None,
        k_end: SupportsDLPack | None = None,
        topk: int = 2048,
    ) -> Verification | DeviceVerification:
        """Audit a call; arguments, results and errors as for `dosa.verify`."""
        from dosa._reports import Verification

        verification: Verification | DeviceVerification
        if on_device(q):
            _device.refuse_progress(self._progress)
            arrays = (q, k, k_scale, weights, k_start, k_end)
            message, verification = _device.verify(self._options, arrays, int32("topk", topk))
        else:
            problem = _problem(q, k, k_scale, weights, k_start, k_end, topk)
            message, report, stats = _core.verify(problem, self._options, self._progress)
            verification = Verification(**report, stats=Stats(**stats))
        if message:
            error = CertificateError(message)
            error.verification = verification
            raise error
        return verification

    def explain(
        self,
        q: SupportsDLPack,
        k: SupportsDLPack,
        k_scale: SupportsDLPack,
        weights: SupportsDLPack,
        k_start: SupportsDLPack | None = None,
        k_end: SupportsDLPack | None = None,
        topk: int = 2048,
        *,
        row: int,
    ) -> Certificate:
        """Return the certificate of one row; arguments and results as for `dosa.explain`."""
        from dosa._reports import Certificate

        problem = _problem(q, k, k_scale, weights, k_start, k_end, topk)
        bounds = empty((problem.num_keys,), "float32", None)
        found = _core.bounds(problem, self._options, self._workspace, int32("row", row), bounds)
        return Certificate(**found, bounds=bounds)
