# SPDX-License-Identifier: Apache-2.0
"""Decode steps over paged key caches, and what keeps the caches: gather, insertion, witnesses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args

from dosa import _core, _device_decode
from dosa._arrays import SupportsDLPack, empty, is_tensor, view
from dosa._device import Workspaces, given_outputs
from dosa._errors import ArgumentError, ArgumentTypeError
from dosa._libraries import on_device
from dosa._options import IndexForm, Mode, Order, Threshold, int32, integer, parse, word
from dosa._results import ROW_FIELDS, Stats, TopK

if TYPE_CHECKING:
    pass

ScaleFormat = Literal["fp32", "ue8m0"]

MAX_TOPK = 8192
_PAGE_SIZE = 64
_INT32_MAX = 2**31 - 1


class DecodeOptions(TypedDict, total=False):
    """Keyword options of a decode step; the documentation of `dosa.paged_topk` explains them."""

    mode: Mode
    threshold: Threshold
    order: Order
    index_form: IndexForm
    forced_first: int
    forced_last: int
    threads: int
    workspace_mib: int


class StepOptions(TypedDict, total=False):
    """Keyword arguments of one decode step: its cache, what is returned, what is remembered."""

    page_size: int | None
    scores: bool
    index_offset: SupportsDLPack | None
    slot_table: SupportsDLPack | None
    slot_page_size: int
    witnesses: Witnesses | None
    witness_index: SupportsDLPack | None
    max_context: int
    out: object


class PagedOptions(DecodeOptions, StepOptions, total=False):
    """All keyword arguments of `dosa.paged_topk`."""


_STEP_NAMES = frozenset(StepOptions.__annotations__)


class Witnesses:
    """What sequences remember from one decode step to the next: a hint, never believed.

    A step scores first what its sequence selected last, which gives a tight threshold at once. Any
    contents are valid: states of another sequence, of tokens that were taken back, or random bytes
    change the time of a step and never its answer.

    Parameters
    ----------
    topk : int
        K of the steps, 1 to 8192.
    count : int
        Sequences, at least 0. All states are empty at first.
    device : torch.device or str, optional
        Where PyTorch is to hold the states, for steps there. Default: in a NumPy array.

    Attributes
    ----------
    states : (count, bytes) uint8 NumPy array, or torch tensor
        One row per sequence; rows may be copied, moved and zeroed freely.

    Examples
    --------
    >>> import dosa
    >>> witnesses = dosa.Witnesses(topk=512, count=8)
    >>> witnesses.set(3, [5, 7, -1])  # say, the last row of a prefill
    >>> witnesses.states.shape
    (8, 3076)
    """

    def __init__(self, topk: int, count: int, device: object = None) -> None:
        self.topk = integer("topk", topk, 1, MAX_TOPK)
        count = integer("count", count, 0, _INT32_MAX)
        size = _core.witness_bytes(self.topk)
        self.states: Any
        if device is None:
            import numpy as np

            self.states = np.zeros((count, size), np.uint8)
        else:
            import torch

            self.states = torch.zeros((count, size), dtype=torch.uint8, device=device)

    @classmethod
    def of(cls, states: Any, topk: int) -> Witnesses:
        """Take states that exist: (count, bytes) uint8, rows any multiple of 4 bytes apart."""
        made = cls(topk, 0)
        made.states = states
        return made

    def set(self, state: int, ids: object) -> None:
        """Remember known winners: numbers of tokens in any order; negative ones are left out.

        Parameters
        ----------
        state : int
            The sequence.
        ids : sequence of int, or int32 array
            At most K and half as many are kept. Where states or ids are on a device this waits for
            a copy between it and the host.
        """
        import numpy as np

        state = integer("state", state, 0, len(self.states) - 1)
        if on_device(ids):
            ids = ids.cpu() if is_tensor(ids) else ids.get()  # type: ignore[attr-defined]
        elif not isinstance(ids, SupportsDLPack):
            ids = np.asarray(ids, np.int32)
        if not on_device(self.states):
            _core.witness_set(self.states[state], self.topk, view("ids", ids, "int32"))
            return
        host = np.zeros(self.states.shape[1], np.uint8)
        _core.witness_set(host, self.topk, view("ids", ids, "int32"))
        import torch

        self.states[state] = torch.from_numpy(host).to(self.states.device)

    def clear(self, state: int | None = None) -> None:
        """Forget one sequence, or all."""
        if state is None:
            self.states[:] = 0
        else:
            self.states[integer("state", state, 0, len(self.states) - 1)] = 0


def paged_topk(
    q: SupportsDLPack,
    kv_cache: SupportsDLPack,
    weights: SupportsDLPack,
    context_lens: SupportsDLPack,
    block_table: SupportsDLPack,
    topk: int = 2048,
    **options: Unpack[PagedOptions],
) -> TopK[Any]:
    """Return the K best tokens of every query of a decode step, exactly.

    A query gets the very ids and scores that `dosa.topk` gives it on the keys of its request,
    gathered in order (docs/decode.md).

    Parameters
    ----------
    q : (B, next_n, H, D) float8_e4m3fn, or uint8 holding its codes, contiguous
        `next_n` queries of each request, 1 to 8.
    kv_cache : (pages, page_size, 1, D + 4), (pages, page_size, D + 4) or (pages, bytes) uint8
        Pages as serving engines hold them: of each first ``page_size * D`` bytes of keys, then
        page_size float32 scales. Pages may be any multiple of 4 bytes apart.
    weights : (B * next_n, H) float32
        Signed head weights with all other scales folded in; rows may be strided.
    context_lens : (B, next_n) or (B,) int32
        The tokens that each query sees, or those of a request's last query, of which each query
        before sees one fewer. Lengths below 1 give a row of -1.
    block_table : (B, blocks) int32
        The page of each page_size tokens; what no length reaches is not looked at.
    topk : int
        K, 1 to 8192.
    **options
        page_size : int, optional
            Tokens per page: 1, 16, 32, 64 or 128. Default: that of the cache's shape, else 64.
        scores : bool
            Return the scores too.
        index_form : {"absolute", "relative", "offset", "slot"}
            Position in the request (twice); position + index_offset; slot in the cache,
            ``block_table[b, p // page_size] * page_size + p % page_size``.
        index_offset : (B * next_n,) int32
            For ``index_form="offset"``.
        slot_table : (B, pages) int32, with slot_page_size : int, default 1
            For ``index_form="slot"``: slots in another cache than kv_cache.
        witnesses : Witnesses, optional
            What the sequences remember; rewritten by the call. Its K has to be `topk`.
        witness_index : (B,) int32, optional
            The state of each request; outside the states: none. Default: 0, 1, ...
        max_context : int, optional
            Longer lengths count as this.
        out : array, or pair of arrays, optional
            As for `dosa.topk`.
        mode : {"auto", "base", "full"}
            Same answer: every key is bounded with all heads, or scored ("base").
        threshold, order, forced_first, forced_last, threads, workspace_mib
            As for `dosa.topk`.

    Returns
    -------
    TopK
        indices (B * next_n, K) int32, scores (B * next_n, K) float32 or None, stats, rows.

    Raises
    ------
    dosa.ArgumentTypeError, dosa.ArgumentError
        As for `dosa.topk`; also where a length reaches a block that has no page.
    dosa.UnsupportedError
        A mode that screens.
    MemoryError
        No memory for the results or the workspace.

    Examples
    --------
    >>> import numpy as np, dosa
    >>> cache = np.zeros((2, 16, 20), np.uint8)
    >>> keys = np.full((3, 16), 0x3F80, np.uint16)  # three tokens, bf16 ones
    >>> dosa.paged_insert(cache, keys, np.array([16, 17, 18]))  # page 1
    >>> q = np.full((1, 1, 1, 16), 0x38, np.uint8)  # e4m3 code of 1.0
    >>> table, ones = np.array([[1]], np.int32), np.ones((1, 1), np.float32)
    >>> dosa.paged_topk(q, cache, ones, np.array([3], np.int32), table, topk=4).indices
    array([[ 0,  1,  2, -1]], dtype=int32)
    """
    given: dict[str, Any] = dict(options)
    step = {name: given.pop(name) for name in list(given) if name in _STEP_NAMES}
    known = DecodeOptions.__annotations__.keys()
    for name in given:
        if name not in known:
            expected = f"some of {', '.join(sorted([*known, *_STEP_NAMES]))}"
            raise ArgumentTypeError.of("options", repr(name), expected)
    parsed, _ = parse(given)  # type: ignore[arg-type]
    arrays = (q, kv_cache, weights, context_lens, block_table)
    workspaces = _core.Workspace(), Workspaces()
    return run_step(parsed, workspaces, arrays, topk, step)  # type: ignore[arg-type]


def run_step(
    options: _core.Options,
    workspaces: tuple[_core.Workspace, Workspaces],
    arrays: tuple[object, object, object, object, object],
    topk: int,
    step: StepOptions,
) -> TopK[Any]:
    """Answer one decode step; arrays are q, kv_cache, weights, context_lens and block_table.

    The workspaces are those of the host and of devices.
    """
    for name in step:
        if name not in _STEP_NAMES:
            raise ArgumentTypeError.of("options", repr(name), f"some of {sorted(_STEP_NAMES)}")
    q, kv_cache, weights, context_lens, block_table = arrays
    topk = integer("topk", topk, 1, MAX_TOPK)
    witnesses = step.get("witnesses")
    if witnesses is not None and not isinstance(witnesses, Witnesses):
        raise ArgumentTypeError.of("witnesses", type(witnesses).__name__, "dosa.Witnesses")
    if witnesses is not None and witnesses.topk != topk:
        found, expected = f"those of K = {witnesses.topk}", f"K = {topk}"
        raise ArgumentError.of("witnesses", found, expected)
    slot_page_size = int32("slot_page_size", step.get("slot_page_size", 1))
    max_context = integer("max_context", step.get("max_context", _INT32_MAX), 0, _INT32_MAX)
    out = given_outputs(step.get("out"))
    if on_device(q):
        numbers = (_page_size(kv_cache, step.get("page_size")), slot_page_size, max_context)
        return _device_decode.topk(options, workspaces[1], arrays, topk, step, numbers, out)
    problem = _core.PagedProblem(
        view("q", q, "code"),
        _read_cache(kv_cache, step.get("page_size"), _last_extent(q)),
        view("weights", weights, "float32"),
        view("context_lens", context_lens, "int32"),
        view("block_table", block_table, "int32"),
        view("index_offset", step.get("index_offset"), "int32"),
        view("slot_table", step.get("slot_table"), "int32"),
        None if witnesses is None else view("witnesses", witnesses.states, "code"),
        view("witness_index", step.get("witness_index"), "int32"),
        topk,
        slot_page_size,
        max_context,
    )
    shape = (problem.num_rows, topk)
    like = q if is_tensor(q) else None
    indices = empty(shape, "int32", like) if out[0] is None else out[0]
    scores = step.get("scores", False)
    values = empty(shape, "float32", like) if scores and out[1] is None else out[1]
    raw = empty((problem.num_rows, _core.ROW_STATS_BYTES), "uint8", None)
    stats = _core.paged_topk(
        problem,
        options,
        workspaces[0],
        view("indices", indices, "int32"),
        view("scores", values, "float32"),
        raw,
    )
    return TopK(indices, values, Stats(**stats), raw.view(list(ROW_FIELDS)).reshape(-1))


def paged_gather(
    kv_cache: SupportsDLPack,
    block_table: SupportsDLPack,
    cu_seq_lens: SupportsDLPack,
    *,
    head_dim: int = 128,
    page_size: int | None = None,
    threads: int = 0,
    num_keys: int | None = None,
) -> tuple[Any, Any]:
    """Return the keys of requests one after another, as a prefill takes them.

    Parameters
    ----------
    kv_cache, page_size
        As for `dosa.paged_topk`.
    block_table : (B, blocks) int32
        The page of each page_size tokens.
    cu_seq_lens : (B + 1,) int32
        Where the keys of each request begin; the last is their number in all.
    head_dim : int
        D.
    threads : int
        OpenMP threads; 0 is the runtime's default.
    num_keys : int, optional
        N, at least the last of `cu_seq_lens`; keys behind that one are not written. Default: that
        one, for which a call on a device has to wait.

    Returns
    -------
    k : (N, D) uint8, float8_e4m3fn where `kv_cache` is a torch tensor
    k_scale : (N,) float32
    """
    ends = None if on_device(kv_cache) else view("cu_seq_lens", cu_seq_lens, "int32")
    if num_keys is None:
        size = len(cu_seq_lens)  # type: ignore[arg-type]
        num_keys = int(cu_seq_lens[-1]) if size > 0 else 0  # type: ignore[index]
        if num_keys < 0:
            raise ArgumentError.of("cu_seq_lens", str(num_keys), "0 or more")
    total = integer("num_keys", num_keys, 0, _INT32_MAX)
    head_dim = int32("head_dim", head_dim)
    if on_device(kv_cache):
        page_size = _page_size(kv_cache, page_size)
        arrays = (kv_cache, block_table, cu_seq_lens, total, head_dim, page_size)
        return _as_codes(kv_cache, *_device_decode.gather(*arrays))
    like = kv_cache if is_tensor(kv_cache) else None
    k = empty((total, head_dim), "uint8", like)
    k_scale = empty((total,), "float32", like)
    cache = _read_cache(kv_cache, page_size, head_dim)
    table = view("block_table", block_table, "int32")
    _core.paged_gather(cache, table, ends, k, k_scale, total, int32("threads", threads))
    return _as_codes(kv_cache, k, k_scale)


def _as_codes(kv_cache: object, k: Any, k_scale: Any) -> tuple[Any, Any]:
    """Return keys as float8 where the library of the cache has that."""
    if is_tensor(kv_cache):
        import torch

        k = k.view(torch.float8_e4m3fn)
    return k, k_scale


def paged_insert(
    kv_cache: SupportsDLPack,
    k: SupportsDLPack,
    slot_mapping: SupportsDLPack,
    *,
    scale_format: ScaleFormat = "fp32",
    page_size: int | None = None,
    threads: int = 0,
) -> None:
    """Quantise new keys and write them to their slots.

    Parameters
    ----------
    kv_cache, page_size
        As for `dosa.paged_topk`; written.
    k : (T, D) bfloat16, or uint16 holding its bits
        New keys; rows may be strided.
    slot_mapping : (T,) int64
        ``page * page_size + place`` of each key, all distinct; negative: not written.
    scale_format : {"fp32", "ue8m0"}
        ``max(amax, 1e-4) / 448``, or the least power of two that is not below that.
    threads : int
        OpenMP threads; 0 is the runtime's default.

    Raises
    ------
    dosa.ArgumentTypeError, dosa.ArgumentError
        As for `dosa.topk`; a slot behind the cache, before anything is written.
    """
    formats = get_args(ScaleFormat)
    form = word("scale_format", scale_format, formats)
    page_size = _page_size(kv_cache, page_size)
    if on_device(kv_cache):
        _device_decode.insert(kv_cache, k, slot_mapping, form, _last_extent(k), page_size)
        return
    keys = view("k", k, "bfloat16")
    pages = view("kv_cache", kv_cache, "code")
    cache = _core.Cache(pages, page_size, _last_extent(k), True)
    _core.paged_insert(
        cache,
        keys,
        view("slot_mapping", slot_mapping, "int64"),
        form,
        int32("threads", threads),
    )


def _read_cache(kv_cache: object, page_size: int | None, head_dim: int) -> _core.Cache:
    page_size = _page_size(kv_cache, page_size)
    return _core.Cache(view("kv_cache", kv_cache, "code"), page_size, head_dim, False)


def _page_size(kv_cache: object, given: int | None) -> int:
    """Return what was given, or what the shape of the cache says."""
    if given is not None:
        return int32("page_size", given)
    shape: Any = getattr(kv_cache, "shape", ())
    return int(shape[1]) if len(shape) in (3, 4) else _PAGE_SIZE


def _last_extent(array: object) -> int:
    """Return D; the extension refuses what has none."""
    shape: Any = getattr(array, "shape", ())
    return int(shape[-1]) if len(shape) > 0 else 0
