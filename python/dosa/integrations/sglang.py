# SPDX-License-Identifier: Apache-2.0
"""SGLang's DSA indexer with DoSA's selection, in prefill and decode.

    from dosa.integrations import sglang

    installed = sglang.install()

In `sglang.srt.layers.attention.dsa`, the logits of an extend step are no longer computed: the Top-K
backend that is given them calls `torch.ops.dosa.topk` with what they would be made of, in the index
form that the step needs: positions of a request, the same plus an offset (ragged), or slots of the
page table (paged). Those of a decode step, a target verification or a paged extend are not computed
either: there it is `torch.ops.dosa.paged_topk` on the paged cache. Initial and local tokens that
are always kept stay so. Insertion into the cache, gathering and metadata stay SGLang's.

See docs/integrations.md for what was and what was not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dosa.integrations._engine import engine_problem
from dosa.integrations._pending import (
    Installed,
    Operands,
    PendingLogits,
    Step,
    cannot,
    cannot_step,
    ready,
    select,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Installed", "apply", "install"]

FIRST, BEYOND = (0, 5, 22), (0, 5, 24)
INDEXER = "sglang.srt.layers.attention.dsa.dsa_indexer"
BACKEND = "sglang.srt.layers.attention.dsa.dsa_topk_backend"
LOGITS = "resolve_fp8_mqa_logits_fn"
DECODE_LOGITS = "resolve_fp8_paged_mqa_logits_fn"  # a release without it keeps its own
FORCED = "_mask_init_and_local_tokens"
# The arguments that the selection is called with; the contract test compares.
FORCED_PARAMETERS = ("self", "logits", "lengths", "row_starts")
SELECTION_PARAMETERS = (
    *("self", "logits", "lengths", "topk", "topk_transform_method", "attn_metadata"),
    *("cu_seqlens_q_topk", "topk_indices_offset", "row_starts", "batch_idx_list"),
    "force_unfused_topk",
)


def install(*, enabled: bool = True) -> Installed:
    """Replace the selection of an SGLang that is importable, in this process.

    Parameters
    ----------
    enabled : bool
        False, or an environment variable ``DOSA_DISABLE`` that lists ``sglang`` or ``all``, leaves
        SGLang alone.

    Returns
    -------
    Installed
        Counters, and `uninstall`. Where it is not `active` nothing was replaced.

    Warns
    -----
    dosa.integrations.IntegrationWarning
        Another release than 0.5.22 or 0.5.23, a name that is not there, or no engine for the GPU in
        this package.
    """
    from importlib import import_module, metadata

    def problem() -> str | None:
        return engine_problem("cuda") or missing(import_module(INDEXER), import_module(BACKEND))

    made = ready("sglang", metadata.version("sglang"), FIRST, BEYOND, enabled, problem)
    if made.problem is None:
        apply(import_module(INDEXER), import_module(BACKEND), made)
    return made


def missing(indexer: Any, backend: Any) -> str | None:
    """Return that a module lacks a name that `apply` needs, or None."""
    absent = [
        f"{module.__name__}.{path}"
        for module, path in (
            (indexer, LOGITS),
            (indexer, f"Indexer.{FORCED}"),
            (backend, "DSATopKBackend.topk_transform"),
            (backend, "TopkTransformMethod.RAGGED"),
            (backend, "envs"),
        )
        if not _has(module, path)
    ]
    return f"sglang: found no {', '.join(absent)}, expected them" if absent else None


def _has(owner: Any, path: str) -> bool:
    for name in path.split("."):
        if not hasattr(owner, name):
            return False
        owner = getattr(owner, name)
    return True


def apply(indexer: Any, backend: Any, made: Installed) -> None:
    """Replace names in the modules of the indexer and of the Top-K backends."""
    _replace_logits(indexer, made)
    if hasattr(indexer, DECODE_LOGITS):
        _replace_decode_logits(indexer, made)
    _replace_forced(indexer.Indexer, made)
    _replace_selection(backend, made)


def _replace_logits(indexer: Any, made: Installed) -> None:
    resolve = getattr(indexer, LOGITS)

    def logits(
        q: Tensor, kv: tuple[Tensor, Tensor], weights: Tensor, ks: Tensor, ke: Tensor, **named: Any
    ) -> Any:
        operands = Operands(q, *kv, weights, ks, ke)
        reason = cannot(operands, None)
        if reason is not None:
            made.fallbacks[reason] += 1
            return resolve()(q, kv, weights, ks, ke, **named)
        return PendingLogits(
            operands, lambda: resolve()(q, kv, weights, ks, ke, **named), kv[0].shape[0]
        )

    made.replace(indexer, LOGITS, lambda: logits)


def _replace_decode_logits(indexer: Any, made: Installed) -> None:
    resolve = getattr(indexer, DECODE_LOGITS)

    def logits(
        q: Tensor,
        kv_cache: Tensor,
        weights: Tensor,
        context_lens: Tensor,
        block_table: Tensor,
        schedule_metadata: Any,
        max_seq_len: int,
        **named: Any,
    ) -> Any:
        def compute() -> Any:
            arguments = (q, kv_cache, weights, context_lens, block_table)
            return resolve()(*arguments, schedule_metadata, max_seq_len, **named)

        step = Step(q, kv_cache, weights, context_lens, block_table)
        reason = cannot_step(step, None, None)
        if reason is not None:
            made.fallbacks[reason] += 1
            return compute()
        return PendingLogits(step, compute, max_seq_len)

    made.replace(indexer, DECODE_LOGITS, lambda: logits)


def _replace_forced(owner: Any, made: Installed) -> None:
    original = getattr(owner, FORCED)

    def forced(self: Any, logits: Any, lengths: Tensor, row_starts: Tensor | None = None) -> Any:
        if not isinstance(logits, PendingLogits) or logits.computed:
            return original(self, logits, lengths, row_starts)
        logits.forced_first, logits.forced_last = self.num_init_tokens, self.num_local_tokens
        return logits

    made.replace(owner, FORCED, forced)


def _replace_selection(backend: Any, made: Installed) -> None:
    owner = backend.DSATopKBackend
    original = owner.topk_transform

    def topk_transform(
        self: Any,
        logits: Any,
        lengths: Tensor,
        topk: int,
        topk_transform_method: Any,
        attn_metadata: Any,
        cu_seqlens_q_topk: Tensor | None = None,
        topk_indices_offset: Tensor | None = None,
        row_starts: Tensor | None = None,
        batch_idx_list: Any = None,
        force_unfused_topk: bool = False,
    ) -> Any:
        ragged = topk_transform_method == backend.TopkTransformMethod.RAGGED
        unfused = force_unfused_topk or not backend.envs.SGLANG_DSA_FUSE_TOPK.get()
        if isinstance(logits, PendingLogits):
            pages = (attn_metadata, cu_seqlens_q_topk, batch_idx_list)
            found = _select(
                logits, lengths, row_starts, topk, unfused, ragged, topk_indices_offset, pages, made
            )
            if found is not None:
                return found
            logits = _with_forced(logits, lengths, row_starts)
        return original(
            self,
            logits,
            lengths,
            topk,
            topk_transform_method,
            attn_metadata,
            cu_seqlens_q_topk,
            topk_indices_offset,
            row_starts,
            batch_idx_list,
            force_unfused_topk,
        )

    made.replace(owner, "topk_transform", topk_transform)


def _select(
    pending: PendingLogits,
    lengths: Tensor,
    row_starts: Tensor | None,
    topk: int,
    unfused: bool,
    ragged: bool,
    offset: Tensor | None,
    pages: tuple[Any, Tensor | None, Any],
    made: Installed,
) -> Tensor | None:
    """Return the ids in the form that is asked for; None, counted, where that cannot be."""
    import torch

    start = torch.zeros_like(lengths) if row_starts is None else row_starts
    if isinstance(pending.operands, Operands):
        start = start.to(torch.int32).contiguous()
        end = (start + lengths).to(torch.int32)
        pending.operands = pending.operands._replace(k_start=start, k_end=end)
    if unfused:
        return select(pending, topk, made, "relative", index_form="relative")
    if ragged and offset is not None:
        offset = offset[: len(start)].to(torch.int32).contiguous()
        return select(pending, topk, made, "offset", index_form="offset", index_offset=offset)
    metadata, cu_seqlens, batch = pages
    table = metadata.page_table_1
    if ragged or table is None:
        made.fallbacks["no page table of page size 1"] += 1
        return None
    positions = select(pending, topk, made, "slot", index_form="relative")
    return None if positions is None else slots(positions, table, cu_seqlens, batch)


def slots(positions: Tensor, table: Tensor, cu_seqlens: Tensor | None, batch: Any = None) -> Tensor:
    """Map positions of requests to the slots of a page table with page size 1.

    Parameters
    ----------
    positions : (S, K) int32
        Positions within the row's request, -1 for none.
    table : (B, T) int32
        The slot of each position, by request.
    cu_seqlens : (B + 1,) int32, or None
        The rows of entry b are [cu_seqlens[b], cu_seqlens[b + 1]). None: row b is of entry b.
    batch : (B,) integers, or None
        The request of each entry. None: entry b is request b.

    Returns
    -------
    (S, K) int32
        Slots, -1 where the position is.
    """
    import torch

    rows = torch.arange(positions.shape[0], device=positions.device)
    if cu_seqlens is not None:
        rows = torch.searchsorted(cu_seqlens[1:].contiguous().long(), rows, right=True)
    if batch is not None:
        rows = torch.as_tensor(batch, device=rows.device).long()[rows]
    found = table[rows[:, None], positions.clamp(min=0).long()]
    return torch.where(positions >= 0, found, -1).to(torch.int32)


def _with_forced(pending: PendingLogits, lengths: Tensor, row_starts: Tensor | None) -> Tensor:
    """Return the logits with +Inf at the tokens that are always kept."""
    import torch

    logits = pending.tensor()
    start = torch.zeros_like(lengths) if row_starts is None else row_starts
    column = torch.arange(logits.shape[1], device=logits.device) - start[:, None]
    kept = (column >= 0) & (column < pending.forced_first)
    last = lengths[:, None]
    kept |= (column >= last - pending.forced_last) & (column < last)
    return logits.masked_fill_(kept, float("inf"))
