# SPDX-License-Identifier: Apache-2.0
"""`torch.ops.dosa`: the selection as operators of PyTorch. Importing this module registers them.

    import dosa.torch
    ids = torch.ops.dosa.topk(q, k, k_scale, weights, k_start, k_end, 2048)

`topk`, `topk_with_scores`, `scores`, `paged_topk`, `paged_insert` and `paged_gather` have the
arguments of the functions of `dosa` (witnesses as the tensor of their states), and shapes are known
without running them (fake tensors), so that `torch.compile` takes them as they are, without a graph
break. They run where `q` lies: on the host in the score model `ieee`, on a CUDA
device in the model `sm90`, on the current stream and without waiting, so that CUDA graphs take them
too. `workspace_mib=None` is the default of the engine.

Outputs share no memory with inputs, and inputs are not changed but for witnesses and the cache of
`paged_insert`. The operators have no derivative: going backward through scores raises RuntimeError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, cast

import torch
from torch import Tensor

from dosa._errors import ArgumentError
from dosa._functions import scores as _scores
from dosa._functions import topk as _topk
from dosa._paged_operators import OPERATORS as _PAGED
from dosa._results import TopK

_INPUTS = (
    "Tensor q, Tensor k, Tensor k_scale, Tensor weights, Tensor? k_start=None, Tensor? k_end=None"
)
_SELECT = f"{_INPUTS}, int topk=2048, Tensor? index_offset=None, Tensor? page_table=None"
_OPTIONS = (
    "str mode='auto', str threshold='rising', str order='id', str index_form='absolute', "
    "int page_size=1, int forced_first=0, int forced_last=0, int heads=0, int threads=0, "
    "int? workspace_mib=None, str score_model='default'"
)


# The options are those of the schemas.
_call_topk: Callable[..., TopK[Tensor]] = _topk
_call_scores: Callable[..., Tensor] = _scores


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _detached(values: tuple[Tensor | None, ...]) -> list[Tensor | None]:
    """Below autograd a tensor still says that it requires grad; there is no gradient to lose."""
    return [None if value is None else value.detach() for value in values]


def _run_topk(
    q: Tensor,
    k: Tensor,
    k_scale: Tensor,
    weights: Tensor,
    k_start: Tensor | None = None,
    k_end: Tensor | None = None,
    topk: int = 2048,
    index_offset: Tensor | None = None,
    page_table: Tensor | None = None,
    **options: Any,
) -> Tensor:
    inputs = _detached((q, k, k_scale, weights, k_start, k_end))
    forms = {"index_offset": index_offset, "page_table": page_table}
    return _call_topk(*inputs, topk, **forms, **_given(options)).indices


def _run_topk_with_scores(
    q: Tensor,
    k: Tensor,
    k_scale: Tensor,
    weights: Tensor,
    k_start: Tensor | None = None,
    k_end: Tensor | None = None,
    topk: int = 2048,
    index_offset: Tensor | None = None,
    page_table: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    inputs = _detached((q, k, k_scale, weights, k_start, k_end))
    forms = {"index_offset": index_offset, "page_table": page_table}
    result = _call_topk(*inputs, topk, scores=True, **forms, **_given(options))
    return result.indices, cast("Tensor", result.scores)


def _run_scores(
    q: Tensor,
    k: Tensor,
    k_scale: Tensor,
    weights: Tensor,
    k_start: Tensor | None = None,
    k_end: Tensor | None = None,
    *,
    threads: int = 0,
    workspace_mib: int | None = None,
    score_model: str = "default",
) -> Tensor:
    inputs = _detached((q, k, k_scale, weights, k_start, k_end))
    given = _given({"workspace_mib": workspace_mib, "score_model": score_model})
    return _call_scores(*inputs, threads=threads, **given)


def _check_fake(q: Tensor, k: Tensor, k_scale: Tensor, weights: Tensor) -> None:
    """Refuse wrong ranks, the one thing that fake tensors tell for certain."""
    for name, tensor, rank in (
        ("q", q, 3),
        ("k", k, 2),
        ("k_scale", k_scale, 1),
        ("weights", weights, 2),
    ):
        if tensor.dim() != rank:
            raise ArgumentError.of(name, f"{tensor.dim()} dimensions", str(rank))


def _topk_fake(
    q: Tensor,
    k: Tensor,
    k_scale: Tensor,
    weights: Tensor,
    k_start: Tensor | None = None,
    k_end: Tensor | None = None,
    topk: int = 2048,
    index_offset: Tensor | None = None,
    page_table: Tensor | None = None,
    **options: Any,
) -> Tensor:
    _check_fake(q, k, k_scale, weights)
    return q.new_empty((q.shape[0], topk), dtype=torch.int32)


def _topk_with_scores_fake(
    q: Tensor,
    k: Tensor,
    k_scale: Tensor,
    weights: Tensor,
    k_start: Tensor | None = None,
    k_end: Tensor | None = None,
    topk: int = 2048,
    index_offset: Tensor | None = None,
    page_table: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    indices = _topk_fake(q, k, k_scale, weights, k_start, k_end, topk)
    return indices, q.new_empty(indices.shape, dtype=torch.float32)


def _scores_fake(
    q: Tensor,
    k: Tensor,
    k_scale: Tensor,
    weights: Tensor,
    k_start: Tensor | None = None,
    k_end: Tensor | None = None,
    **options: Any,
) -> Tensor:
    _check_fake(q, k, k_scale, weights)
    return q.new_empty((q.shape[0], k.shape[0]), dtype=torch.float32)


def _no_derivative(*_: object) -> NoReturn:
    raise RuntimeError("torch.ops.dosa: found a backward pass, expected none: no derivative")


_OPERATORS = (
    ("topk", f"({_SELECT}, *, {_OPTIONS}) -> Tensor", _run_topk, _topk_fake),
    (
        "topk_with_scores",
        f"({_SELECT}, *, {_OPTIONS}) -> (Tensor, Tensor)",
        _run_topk_with_scores,
        _topk_with_scores_fake,
    ),
    (
        "scores",
        f"({_INPUTS}, *, int threads=0, int? workspace_mib=None, "
        "str score_model='default') -> Tensor",
        _run_scores,
        _scores_fake,
    ),
)


def _register() -> None:
    for name, schema, run, fake in _OPERATORS:
        qualified = f"dosa::{name}"
        torch.library.define(qualified, schema)
        torch.library.impl(qualified, ("cpu", "cuda"), run)
        torch.library.register_fake(qualified, fake)
        torch.library.register_autograd(qualified, _no_derivative)
    for name, schema, run, fake in _PAGED:
        qualified = f"dosa::{name}"
        torch.library.define(qualified, schema)
        torch.library.impl(qualified, ("cpu", "cuda"), run)
        torch.library.register_fake(qualified, fake)


_register()
