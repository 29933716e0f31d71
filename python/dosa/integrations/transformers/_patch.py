# SPDX-License-Identifier: Apache-2.0
"""Switching a model's indexers over and back."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from typing import Any, Literal

from dosa._errors import ArgumentError, ArgumentTypeError
from dosa._indexer import Indexer
from dosa._results import Stats
from dosa.integrations._fp8 import SCALE_FORMATS, ScaleFormat
from dosa.integrations._guard import DISABLE, disabled, step_aside, version_problem
from dosa.integrations.transformers._attention import NAME, register
from dosa.integrations.transformers._indexer import IndexerForward

FIRST, BEYOND = (5, 17), (5, 25)
# The indexers, with the function that each rotates its queries and keys by.
INDEXERS = {
    "GlmMoeDsaIndexer": "apply_rotary_pos_emb_interleave",
    "DeepseekV32Indexer": "apply_rotary_pos_emb",
}
PARAMETERS = ("hidden_states", "q_resid", "position_embeddings", "attention_mask", "position_ids")
CACHE_PARAMETERS = ("past_key_values", "cache")  # until 5.23, and from 5.24 on
ATTRIBUTES = (
    *("wq_b", "wk", "k_norm", "weights_proj", "n_heads", "head_dim", "qk_rope_head_dim"),
    *("index_topk", "softmax_scale", "layer_idx"),
)

Mode = Literal["fp8", "native"]
MODES = ("fp8", "native")
Attention = Literal["auto", "blocks", "model"]
ATTENTIONS = ("auto", "blocks", "model")

_HOST_MIB, _DEVICE_MIB = 64, 1024


class Patch:
    """A patched model: what was done with its calls, and the way back.

    Attributes
    ----------
    active : bool
        Whether the model is patched; False where the integration stepped aside.
    problem : str or None
        Why it stepped aside.
    calls : Counter
        Calls by how they were served: "fp8", "native", "all keys" (no more keys than K).
    fallbacks : Counter
        Calls that were served in another way than asked for, by the reason.
    visible, fully_scored : int
        Pairs of a query and a key that it sees, and those of them that the engine scored with all
        heads (mode "fp8").
    """

    def __init__(
        self, model: Any, mode: Mode, scale_format: ScaleFormat, rows: int, mib: int | None
    ) -> None:
        self.active = False
        self.problem: str | None = None
        self.calls: Counter[str] = Counter()
        self.fallbacks: Counter[str] = Counter()
        self.visible = 0
        self.fully_scored = 0
        self.mode, self.scale_format, self.rows, self._mib = mode, scale_format, rows, mib
        self._model = model
        self._indexers: list[Any] = []
        self._attentions: list[Any] = []
        self._implementation: str | None = None
        self._engines: dict[int, Indexer] = {}

    def __repr__(self) -> str:
        state = "active" if self.active else f"not active: {self.problem}"
        return f"<Patch {self.mode}, {state}, {dict(self.calls)}, fallbacks {dict(self.fallbacks)}>"

    def __enter__(self) -> Patch:
        return self

    def __exit__(self, *_: object) -> None:
        self.unpatch()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engines": {}}  # workspaces are made anew

    def indexer(self, threads: int) -> Indexer:
        """Return the engine for so many threads, with its workspace."""
        if threads not in self._engines:
            self._engines[threads] = Indexer(threads=threads)
        return self._engines[threads]

    def budget(self, device_type: str) -> int:
        """Return the bytes of the largest temporary buffer."""
        default = _HOST_MIB if device_type == "cpu" else _DEVICE_MIB
        return (default if self._mib is None else self._mib) << 20

    def count(self, stats: Stats | None) -> None:
        """Add up what a call took; a device does not say."""
        if stats is None:
            return
        self.visible += stats.visible
        self.fully_scored += stats.fully_scored

    def apply(self, indexers: list[Any], attentions: list[Any], blocks: bool) -> None:
        """Switch the model over."""
        for module in indexers:
            rotate = getattr(sys.modules[type(module).__module__], INDEXERS[_family(module)])
            module.forward = IndexerForward(module, rotate, self)
        self._indexers, self._attentions = indexers, attentions
        if blocks:
            register()
            for module in attentions:
                module._dosa_patch = self
            self._implementation = self._model.config._attn_implementation
            self._model.set_attn_implementation(NAME)
        self._model._dosa_patch = self
        self.active = True

    def unpatch(self) -> None:
        """Put the original code back; the counters stay."""
        if not self.active:
            return
        for module in self._indexers:
            del module.forward
        if self._implementation is not None:
            self._model.set_attn_implementation(self._implementation)
            for module in self._attentions:
                del module._dosa_patch
        del self._model._dosa_patch
        self._engines.clear()
        self.active, self.problem = False, "unpatched"


def patch(
    model: Any,
    mode: Mode = "fp8",
    *,
    attention: Attention = "auto",
    scale_format: ScaleFormat = "ue8m0",
    rows: int = 2048,
    mib: int | None = None,
    enabled: bool = True,
) -> Patch:
    """Let DoSA select the keys of a model with DeepSeek Sparse Attention.

    The indexers' scores are no longer held, neither (B, S, H, T) of all heads nor (B, S, T). The
    modules, their weights, the cache and the signatures stay as they are.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A model of type `glm_moe_dsa` or `deepseek_v32`, of transformers 5.17 to 5.24. One that is
        patched already is patched anew.
    mode : {"fp8", "native"}
        "fp8" quantises queries and keys to e4m3, as the serving engines do, and takes the exact
        Top-K of those scores (score model `ieee`): *another score model than the model's own*, so
        the selected keys differ. "native" computes the model's own scores, every key with all
        heads, by the tile; the keys differ only where scores differ by no more than the rounding of
        a sum in another order, and ties go to the lower id.
    attention : {"auto", "blocks", "model"}
        "blocks" gives the attention blocks of queries with their masks, so that no (S, T) mask
        exists, for models on `sdpa`; "model" leaves attention and masks alone; "auto" is "blocks"
        where the model is on `sdpa`, else "model".
    scale_format : {"ue8m0", "fp32"}
        Scales of the quantisation: rounded up to powers of two, or not.
    rows : int
        Queries whose heads are held at a time.
    mib : int, optional
        MiB of the largest temporary buffer of mode "native" and of attention by blocks. Default: 64
        on the host, 1024 on a device, which small blocks would leave idle.
    enabled : bool
        False, or an environment variable ``DOSA_DISABLE`` that lists ``transformers`` or ``all``,
        leaves the model alone.

    Returns
    -------
    Patch
        Counters, and `unpatch`; a context manager. Where it is not `active` the model is unchanged.

    Raises
    ------
    dosa.ArgumentTypeError, dosa.ArgumentError
        No model of these types, or an option that does not exist.

    Warns
    -----
    dosa.integrations.IntegrationWarning
        transformers, or the indexers found in it, are not what this was written for; the model is
        unchanged.

    Notes
    -----
    Calls that cannot be served are left to the original code and counted in `fallbacks`: training
    mode, additive masks with a bias. The selection has no gradient, with or without a patch.
    """
    for name, value, known in (
        ("mode", mode, MODES),
        ("attention", attention, ATTENTIONS),
        ("scale_format", scale_format, SCALE_FORMATS),
    ):
        if value not in known:
            raise ArgumentError.of(name, repr(value), f"one of {', '.join(known)}")
    for name, number in (("rows", rows), ("mib", 1 if mib is None else mib)):
        if not isinstance(number, int) or number < 1:
            raise ArgumentError.of(name, repr(number), "an integer of at least 1")
    indexers, attentions = _find(model)
    unpatch(model)
    made = Patch(model, mode, scale_format, rows, mib)
    if not enabled or disabled("transformers"):
        made.problem = f"switched off by {DISABLE}" if enabled else "enabled=False"
        return made
    made.problem = _problem(model, indexers, attention)
    if made.problem is not None:
        step_aside("transformers", made.problem)
        return made
    on_sdpa = model.config._attn_implementation == "sdpa"
    made.apply(indexers, attentions, attention == "blocks" or (attention == "auto" and on_sdpa))
    return made


def unpatch(model: Any) -> None:
    """Put the original code of a patched model back; does nothing to another one."""
    found = getattr(model, "_dosa_patch", None)
    if isinstance(found, Patch):
        found.unpatch()


def _family(module: Any) -> str:
    return type(module).__name__


def _find(model: Any) -> tuple[list[Any], list[Any]]:
    """Return the indexers, and the attention layers with or without one, of a model."""
    modules = getattr(model, "modules", None)
    if not callable(modules) or not hasattr(model, "config"):
        raise ArgumentTypeError.of("model", type(model).__name__, "a model of transformers")
    everything = list(modules())
    indexers = [module for module in everything if _family(module) in INDEXERS]
    if not indexers:
        kind = getattr(model.config, "model_type", type(model).__name__)
        expected = "a model with indexers: glm_moe_dsa or deepseek_v32"
        raise ArgumentError.of("model", f"model type {kind!r}", expected)
    layers = {name.replace("Indexer", "Attention") for name in INDEXERS}
    return indexers, [module for module in everything if _family(module) in layers]


def _problem(model: Any, indexers: list[Any], attention: Attention) -> str | None:
    """Return why this model must be left alone, or None."""
    import transformers

    problem = version_problem("transformers", transformers.__version__, FIRST, BEYOND)
    if problem is not None:
        return problem
    for module in indexers:
        name = _family(module)
        if "forward" in module.__dict__:
            return f"{name}.forward: found {module.forward!r}, expected the class's own"
        found = tuple(inspect.signature(type(module).forward).parameters)[1:]
        if found[:-1] != PARAMETERS or found[-1] not in CACHE_PARAMETERS:
            expected = f"({', '.join(PARAMETERS)}, {' or '.join(CACHE_PARAMETERS)})"
            return f"{name}.forward: found ({', '.join(found)}), expected {expected}"
        missing = [attribute for attribute in ATTRIBUTES if not hasattr(module, attribute)]
        rotate = INDEXERS[name]
        if not hasattr(sys.modules[type(module).__module__], rotate):
            missing.append(rotate)
        if missing:
            return f"{name}: found no {', '.join(missing)}, expected them"
    implementation = model.config._attn_implementation
    if attention == "blocks" and implementation != "sdpa":
        return f"attention: found {implementation!r}, expected 'sdpa' for attention by blocks"
    return None
