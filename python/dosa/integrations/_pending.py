# SPDX-License-Identifier: Apache-2.0
"""Logits that are not computed unless somebody looks at them.

Serving engines compute logits in one call and select in another, a few lines later. An integration
replaces both: the first returns a `PendingLogits`, the second finds in it what the logits would be
made of, and selects from that. Whatever else wants the logits gets them, from the original code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from dosa._errors import Error
from dosa.integrations._engine import engine_problem
from dosa.integrations._guard import DISABLE, disabled, step_aside, version_problem

if TYPE_CHECKING:
    from torch import Tensor

_MISSING = object()


class Operands(NamedTuple):
    """What logits are made of, as for `dosa.topk`."""

    q: Tensor
    k: Tensor
    k_scale: Tensor
    weights: Tensor
    k_start: Tensor
    k_end: Tensor


class PendingLogits:
    """Stands for an (S, N) float32 tensor of logits.

    Attributes
    ----------
    operands : Operands
        What the logits would be computed from.
    forced_first, forced_last : int
        Keys at both ends of a row's window that count as +Inf.
    """

    def __init__(self, operands: Operands, compute: Callable[[], Tensor], width: int) -> None:
        import torch

        self.operands = operands
        self.forced_first = self.forced_last = 0
        self.shape = torch.Size((operands.q.shape[0], width))
        self.dtype = torch.float32
        self.device = operands.q.device
        self._compute = compute
        self._tensor: Tensor | None = None

    @property
    def computed(self) -> bool:
        """Whether somebody has looked, and may have changed the values."""
        return self._tensor is not None

    def tensor(self) -> Tensor:
        """Return the logits, computed by the original code the first time."""
        if self._tensor is None:
            self._tensor = self._compute()
        return self._tensor

    def stride(self, dim: int) -> int:
        """Return the stride of the tensor that this stands for."""
        return (self.shape[1], 1)[dim]


class Installed:
    """An integration that is in place: its counters, and the way back.

    Attributes
    ----------
    active : bool
        Whether anything was replaced; False where the integration stepped aside.
    problem : str or None
        Why it stepped aside.
    calls : Counter
        Selections by their index form.
    fallbacks : Counter
        Calls that the original code served, by the reason.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.active = False
        self.problem: str | None = None
        self.calls: Counter[str] = Counter()
        self.fallbacks: Counter[str] = Counter()
        self._replaced: list[tuple[Any, str, Any]] = []

    def __repr__(self) -> str:
        state = "active" if self.active else f"not active: {self.problem}"
        return f"<{self.name}, {state}, {dict(self.calls)}, fallbacks {dict(self.fallbacks)}>"

    def replace(self, owner: Any, attribute: str, value: Any) -> None:
        """Put `value` in the place of an attribute, until `uninstall`."""
        self._replaced.append((owner, attribute, owner.__dict__.get(attribute, _MISSING)))
        setattr(owner, attribute, value)
        self.active = True

    def uninstall(self) -> None:
        """Put everything back; the counters stay."""
        for owner, attribute, value in reversed(self._replaced):
            if value is _MISSING:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, value)
        self._replaced.clear()
        if self.active:
            self.active, self.problem = False, "uninstalled"


def select(
    pending: PendingLogits, topk: int, made: Installed, counted: str, **options: Any
) -> Tensor | None:
    """Return (S, K) int32 ids by `torch.ops.dosa.topk`, on the device of the operands.

    The call is counted by the name `counted`. None, and one more among the fallbacks, where the
    engine refuses it.
    """
    import torch

    import_module("dosa.torch")
    options["forced_first"], options["forced_last"] = pending.forced_first, pending.forced_last
    if pending.device.type == "cuda":
        options["score_model"] = "sm90"  # the logits that this stands for
    try:
        found: Tensor = torch.ops.dosa.topk(*pending.operands, topk, **options)
    except Error as refused:
        made.fallbacks[f"refused: {refused}"] += 1
        return None
    made.calls[counted] += 1
    return found


def cannot(operands: Operands, q_scale: Tensor | None) -> str | None:
    """Return why the engine cannot serve a call, or None."""
    import torch

    q, k, _, weights, *_ = operands
    if q_scale is not None or q.dtype != torch.float8_e4m3fn or k.dtype != torch.float8_e4m3fn:
        return "queries or keys that are no float8_e4m3fn"
    if weights.dtype != torch.float32:
        return f"weights of {weights.dtype}"
    return engine_problem(q.device)


def ready(
    name: str,
    version: str,
    first: tuple[int, ...],
    beyond: tuple[int, ...],
    enabled: bool,
    problem: Callable[[], str | None],
) -> Installed:
    """Return what an integration starts with; its `problem` is None where all is as expected."""
    made = Installed(name)
    if not enabled or disabled(name):
        made.problem = f"switched off by {DISABLE}" if enabled else "enabled=False"
        return made
    made.problem = version_problem(name, version, first, beyond) or problem()
    if made.problem is not None:
        step_aside(name, made.problem, stacklevel=4)
    return made
