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


class Step(NamedTuple):
    """What the logits of a decode step are made of, as for `dosa.paged_topk`."""

    q: Tensor
    kv_cache: Tensor
    weights: Tensor
    context_lens: Tensor
    block_table: Tensor


class PendingLogits:
    """Stands for an (S, N) float32 tensor of logits.

    Attributes
    ----------
    operands : Operands or Step
        What the logits would be computed from.
    forced_first, forced_last : int
        Keys at both ends of a row's window that count as +Inf.
    """

    def __init__(
        self, operands: Operands | Step, compute: Callable[[], Tensor], width: int
    ) -> None:
        import torch

        self.operands = operands
        self.forced_first = self.forced_last = 0
        q = operands.q
        rows = q.shape[0] * q.shape[1] if isinstance(operands, Step) else q.shape[0]
        self.shape = torch.Size((rows, width))
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

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Give functions of torch the logits, but join pending ones to a pending one."""
        import torch

        given = kwargs or {}
        parts = args[0] if args else None
        if function is torch.cat and isinstance(parts, (list, tuple)) and given in ({}, {"dim": 0}):
            joined = _joined(parts)
            if joined is not None:
                return joined
        return function(*_computed(args), **_computed(given))

    def stride(self, dim: int) -> int:
        """Return the stride of the tensor that this stands for."""
        return (self.shape[1], 1)[dim]


def _computed(value: Any) -> Any:
    """Return arguments with logits in the place of pending ones."""
    if isinstance(value, PendingLogits):
        return value.tensor()
    if isinstance(value, dict):
        return {name: _computed(each) for name, each in value.items()}
    return type(value)(map(_computed, value)) if isinstance(value, (list, tuple)) else value


def _joined(parts: Any) -> PendingLogits | None:
    """Return the logits of decode steps over one cache, one after another; None where they are not.

    An engine cuts a large step into several, whose kernels take fewer requests.
    """
    import torch

    if not all(isinstance(part, PendingLogits) and not part.computed for part in parts):
        return None
    steps = [part.operands for part in parts]
    first = steps[0]
    alike = {(part.shape[1], part.forced_first, part.forced_last) for part in parts}
    if not isinstance(first, Step) or len(alike) != 1:
        return None
    if any(not isinstance(step, Step) or step.kv_cache is not first.kv_cache for step in steps):
        return None
    columns = dict(zip(Step._fields, zip(*steps, strict=True), strict=True))
    del columns["kv_cache"]
    step = Step(kv_cache=first.kv_cache, **{n: torch.cat(c) for n, c in columns.items()})
    made = PendingLogits(step, lambda: torch.cat([p.tensor() for p in parts]), parts[0].shape[1])
    made.forced_first, made.forced_last = parts[0].forced_first, parts[0].forced_last
    return made


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
    """Return (S, K) int32 ids by `torch.ops.dosa`, on the device of the operands.

    The call is counted by the name `counted`. None, and one more among the fallbacks, where the
    engine refuses it.
    """
    import torch

    import_module("dosa.torch")
    options["forced_first"], options["forced_last"] = pending.forced_first, pending.forced_last
    operator = torch.ops.dosa.topk
    if isinstance(pending.operands, Step):
        operator, options["max_context"] = torch.ops.dosa.paged_topk, pending.shape[1]
    elif pending.device.type == "cuda":
        options["score_model"] = "sm90"  # the logits that this stands for
    try:
        found: Tensor = operator(*pending.operands, topk, **options)
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


def cannot_step(step: Step, q_scale: Tensor | None, indices: Tensor | None) -> str | None:
    """Return why the engine cannot serve a decode step, or None."""
    import torch

    q, _, weights, lens, _ = step
    if q_scale is not None or q.dtype != torch.float8_e4m3fn:
        return "queries that are no float8_e4m3fn"
    if weights.dtype != torch.float32:
        return f"weights of {weights.dtype}"
    if indices is not None:
        return "requests with different numbers of queries"
    if tuple(lens.shape) not in ((q.shape[0],), tuple(q.shape[:2])):
        return "lengths of another shape than (B) or (B, next_n)"
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
