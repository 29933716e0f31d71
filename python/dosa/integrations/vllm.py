# SPDX-License-Identifier: Apache-2.0
"""vLLM's sparse attention indexer with DoSA's selection, in prefill and decode.

    from dosa.integrations import vllm

    installed = vllm.install()

or, where a server starts its own processes, by vLLM's own switch: ``VLLM_PLUGINS=dosa vllm serve``.

In `vllm.model_executor.layers.sparse_attn_indexer`, the code behind the custom operator
`torch.ops.vllm.sparse_attn_indexer`, the logits of a prefill chunk are no longer computed: the
selection that follows calls `torch.ops.dosa.topk` with what they would be made of, and for decode
steps `torch.ops.dosa.paged_topk` on the paged cache. Everything else, insertion into the cache,
gathering, metadata and context parallelism, stays vLLM's.

See docs/integrations.md for what was and what was not run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
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

__all__ = ["Installed", "apply", "install", "plugin"]

PLUGINS = "VLLM_PLUGINS"
FIRST, BEYOND = (0, 29), (0, 34)
MODULE = "vllm.model_executor.layers.sparse_attn_indexer"
LOGITS = "fp8_fp4_mqa_logits"
SELECTION = "top_k_per_row_prefill"
# Of decode steps; a release without them keeps its own.
DECODE_LOGITS = "fp8_fp4_paged_mqa_logits"
DECODE_SELECTION = "get_indexer_topk"
DECODE_PARAMETERS = (
    *("q", "kv_cache", "weights", "context_lens", "block_tables", "schedule_metadata"),
    *("max_model_len", "indices"),
)
DECODE_ARGUMENTS = 6  # of a selection: logits, lengths, next_n, indices, K, longest
# The order of their leading arguments, which calls rely on; the contract test compares.
LOGITS_PARAMETERS = ("q", "kv", "weights", "cu_seqlen_ks", "cu_seqlen_ke")
SELECTION_PARAMETERS = (
    *("logits", "cu_seqlen_ks", "cu_seqlen_ke", "raw_topk_indices", "num_rows"),
    *("stride0", "stride1", "topk_tokens"),
)
# Other functions that read or change logits, in the releases that have them.
READERS = ("_select_candidate_blocks", "_apply_candidate_mask")
MERGE = "_merge_dcp_topk_global"


def install(*, enabled: bool = True) -> Installed:
    """Replace the selection of a vLLM that is importable, in this process.

    Parameters
    ----------
    enabled : bool
        False, or an environment variable ``DOSA_DISABLE`` that lists ``vllm`` or ``all``, leaves
        vLLM alone.

    Returns
    -------
    Installed
        Counters, and `uninstall`. Where it is not `active` nothing was replaced.

    Warns
    -----
    dosa.integrations.IntegrationWarning
        Another release than 0.29 to 0.33, a name that is not there, or no engine for the GPU in
        this package.
    """
    from importlib import import_module, metadata

    def problem() -> str | None:
        return engine_problem("cuda") or missing(import_module(MODULE))

    made = ready("vllm", metadata.version("vllm"), FIRST, BEYOND, enabled, problem)
    if made.problem is None:
        apply(import_module(MODULE), made)
    return made


def plugin() -> Installed | None:
    """Install where vLLM's list of plugins names this one; its entry point in every process.

    vLLM loads all plugins that are installed unless ``VLLM_PLUGINS`` lists them. That this package
    is there is not taken for a wish: without ``dosa`` in that list nothing is replaced.
    """
    names = os.environ.get(PLUGINS, "").split(",")
    return install() if "dosa" in (name.strip() for name in names) else None


def missing(module: Any) -> str | None:
    """Return that a module lacks a name that `apply` needs, or None."""
    absent = [name for name in (LOGITS, "ops", MERGE) if not hasattr(module, name)]
    if not absent and not hasattr(module.ops, SELECTION):
        absent = [f"ops.{SELECTION}"]
    return f"{module.__name__}: found no {', '.join(absent)}, expected them" if absent else None


def apply(module: Any, made: Installed) -> None:
    """Replace names in the module of the indexer."""
    original_logits = getattr(module, LOGITS)

    def logits(
        q: tuple[Tensor, Tensor | None],
        kv: tuple[Tensor, Tensor],
        weights: Tensor,
        cu_seqlen_ks: Tensor,
        cu_seqlen_ke: Tensor,
        *rest: Any,
        **named: Any,
    ) -> Any:
        arguments = (q, kv, weights, cu_seqlen_ks, cu_seqlen_ke, *rest)
        operands = Operands(q[0], *kv, weights, cu_seqlen_ks, cu_seqlen_ke)
        reason = cannot(operands, q[1])
        if reason is not None:
            made.fallbacks[reason] += 1
            return original_logits(*arguments, **named)
        return PendingLogits(operands, lambda: original_logits(*arguments, **named), kv[0].shape[0])

    made.replace(module, LOGITS, logits)
    made.replace(module, "ops", _Operators(module.ops, made))
    if hasattr(module, DECODE_LOGITS) and hasattr(module, DECODE_SELECTION):
        made.replace(module, DECODE_LOGITS, _decode_logits(getattr(module, DECODE_LOGITS), made))
        select_by = _decode_selection(getattr(module, DECODE_SELECTION), made)
        made.replace(module, DECODE_SELECTION, select_by)
    for name in READERS:
        if hasattr(module, name):
            made.replace(module, name, _reading(getattr(module, name)))
    made.replace(module, MERGE, _merging(getattr(module, MERGE)))


def _decode_logits(original: Callable[..., Any], made: Installed) -> Callable[..., Any]:
    def logits(
        q: tuple[Tensor, Tensor | None],
        kv_cache: Tensor,
        weights: Tensor,
        context_lens: Tensor,
        block_tables: Tensor,
        schedule_metadata: Any,
        max_model_len: int,
        indices: Tensor | None = None,
    ) -> Any:
        def compute() -> Any:
            return original(
                q,
                kv_cache,
                weights,
                context_lens,
                block_tables,
                schedule_metadata,
                max_model_len=max_model_len,
                indices=indices,
            )

        step = Step(q[0], kv_cache, weights, context_lens, block_tables)
        reason = cannot_step(step, q[1], indices)
        if reason is not None:
            made.fallbacks[reason] += 1
            return compute()
        return PendingLogits(step, compute, max_model_len)

    return logits


def _decode_selection(original: Callable[..., Any], made: Installed) -> Callable[..., Any]:
    """Replace what a Top-K backend of vLLM does with logits that are pending."""

    def backend(*names: Any, **named: Any) -> Callable[..., Any]:
        theirs = original(*names, **named)

        def select_rows(
            logits: Any, seq_lens: Tensor, next_n: int, indices: Tensor, topk: int, *rest: Any
        ) -> None:
            if isinstance(logits, PendingLogits) and not logits.computed:
                found = select(logits, topk, made, "decode")
                if found is not None:
                    indices.copy_(found)
                    return
            elif isinstance(logits, PendingLogits):
                made.fallbacks["logits that were read before the selection"] += 1
            given = logits.tensor() if isinstance(logits, PendingLogits) else logits
            theirs(given, seq_lens, next_n, indices, topk, *rest)

        return select_rows

    return backend


class _Operators:
    """vLLM's operators with another selection for logits that are pending."""

    def __init__(self, operators: Any, made: Installed) -> None:
        self._operators = operators
        self._made = made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operators, name)

    def top_k_per_row_prefill(
        self,
        logits: Any,
        row_starts: Tensor,
        row_ends: Tensor,
        indices: Tensor,
        num_rows: int,
        stride0: int,
        stride1: int,
        topk: int,
    ) -> None:
        """Write min(K, window) ids relative to the start of the window, then -1, into `indices`."""
        if isinstance(logits, PendingLogits) and not logits.computed:
            found = select(logits, topk, self._made, "relative", index_form="relative")
            if found is not None:
                indices[:num_rows] = found
                return
        elif isinstance(logits, PendingLogits):
            self._made.fallbacks["logits that were read before the selection"] += 1
        if isinstance(logits, PendingLogits):
            logits = logits.tensor()
            stride0, stride1 = logits.stride()
        original = self._operators.top_k_per_row_prefill
        original(logits, row_starts, row_ends, indices, num_rows, stride0, stride1, topk)


def _reading(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function that takes logits first have them."""

    def function(logits: Any, *rest: Any, **named: Any) -> Any:
        given = logits.tensor() if isinstance(logits, PendingLogits) else logits
        return original(given, *rest, **named)

    return function


def _merging(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let the merge over ranks have the logits, where there are several ranks."""

    def function(
        logits: Any,
        topk_indices: Tensor,
        topk_tokens: int,
        dcp_rank: int,
        dcp_world_size: int,
        *rest: Any,
        **named: Any,
    ) -> Any:
        if dcp_world_size > 1 and isinstance(logits, PendingLogits):
            logits = logits.tensor()
        return original(logits, topk_indices, topk_tokens, dcp_rank, dcp_world_size, *rest, **named)

    return function
