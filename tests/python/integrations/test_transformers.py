# SPDX-License-Identifier: Apache-2.0
"""Patched models against the unpatched classes of transformers themselves.

`DOSA_LONG=1` adds 4096 tokens with padding and cache (half a minute, 2 GB).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="needs transformers 5.17 to 5.24")

import dsa_models  # noqa: E402
from dosa.integrations.transformers import patch, unpatch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")

ON_HOST = dsa_models.DEVICE == "cpu"
# Of a row's largest score: rounded dot products, or a tensor core's (docs/numerics-sm90.md).
TOLERANCE = 1e-5 if ON_HOST else 1e-3

LONG = pytest.param(
    4096,
    marks=pytest.mark.skipif(os.environ.get("DOSA_LONG") != "1", reason="DOSA_LONG is not 1"),
)


@pytest.fixture(autouse=True)
def _surroundings() -> Iterator[None]:
    with torch.no_grad(), torch.device(dsa_models.DEVICE):
        yield


class Recorder:
    """Inputs and results of the indexers of a model, in the order of the calls."""

    def __init__(self, model: Any) -> None:
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []
        self._hooks = [
            module.register_forward_hook(self._note, with_kwargs=True)
            for module in dsa_models.indexers(model)
        ]

    def _note(self, module: Any, given: Any, named: Any, result: Any) -> None:

        self.calls.append((module, given, named, result))

    def stop(self) -> list[Any]:
        for hook in self._hooks:
            hook.remove()
        return self.calls


def exact_scores(module: Any, given: Any, keys: Any) -> tuple[Any, Any]:
    """Scores in fp64 from the module's own inputs (B, S, T), and a bound on their rounding."""
    hidden, q_resid, (cos, sin) = given[:3]
    batch, rows, _ = hidden.shape
    modeling = __import__(type(module).__module__, fromlist=["x"])
    interleaved = type(module).__name__.startswith("Glm")
    rotate = modeling.apply_rotary_pos_emb_interleave if interleaved else None
    rotate = rotate or modeling.apply_rotary_pos_emb
    q = module.wq_b(q_resid).view(batch, rows, module.n_heads, module.head_dim)
    part = module.qk_rope_head_dim
    turned, _ = rotate(q[..., :part], q[..., :part], cos, sin, unsqueeze_dim=2)
    q = torch.cat((turned, q[..., part:]), -1).double()
    weights = (module.weights_proj(hidden).float() * module.n_heads**-0.5).double()
    k = keys.double()
    scores = torch.empty((batch, rows, k.shape[1]), dtype=torch.float64)
    bound = torch.empty_like(scores)
    # fp32 sums of D products and of H terms, and four more operations, each to 2^-24.
    unit = (module.head_dim + module.n_heads + 4) * 2.0**-24
    for row in range(0, rows, 64):
        some = slice(row, row + 64)
        dots = torch.einsum("bshd,btd->bsht", q[:, some], k) * module.softmax_scale
        size = torch.einsum("bshd,btd->bsht", q[:, some].abs(), k.abs()) * module.softmax_scale
        scores[:, some] = torch.einsum("bsh,bsht->bst", weights[:, some], dots.relu())
        bound[:, some] = unit * torch.einsum("bsh,bsht->bst", weights[:, some].abs(), size)
    return scores, bound


def compare(module: Any, given: Any, keys: Any, theirs: Any, ours: Any, seen: Any) -> int:
    """Assert that the ids differ only where scores differ by no more than rounding; count these."""
    assert ours.dtype == theirs.dtype == torch.int32
    assert ours.shape == theirs.shape
    batch, rows, topk = ours.shape
    total = keys.shape[1]
    assert int(ours.min()) >= 0
    assert int(ours.max()) < total
    chosen = torch.zeros((2, batch, rows, total), dtype=torch.bool)
    chosen[0].scatter_(-1, theirs.long(), True)
    chosen[1].scatter_(-1, ours.long(), True)
    assert bool((chosen[1].sum(-1) == topk).all()), "an id is there twice"
    chosen &= seen
    assert bool((chosen[1].sum(-1) == seen.sum(-1).clamp(max=topk)).all())
    lost, won = chosen[0] & ~chosen[1], chosen[1] & ~chosen[0]
    if not bool(lost.any()):
        return 0
    scores, bound = exact_scores(module, given, keys)
    infinite = float("inf")
    best_lost = (scores - bound).masked_fill(~lost, -infinite).amax(-1)
    worst_won = (scores + bound).masked_fill(~won, infinite).amin(-1)
    assert bool((best_lost <= worst_won).all()), "a key was lost to one with a lower score"
    return int(lost.sum())


@pytest.mark.parametrize("kind", dsa_models.KINDS)
@pytest.mark.parametrize("length", [300, LONG])
def test_native_selects_the_same_keys(kind: str, length: int) -> None:
    """Every indexer call of a forward pass, on the very inputs of the unpatched model."""
    topk = 48 if length < 1000 else 512
    model = dsa_models.make(kind, index_topk=topk)
    inputs = dsa_models.tokens(length, batch=2 if length < 1000 else 1)
    recorder = Recorder(model)
    model(**inputs)
    calls = recorder.stop()
    assert len(calls) == (3 if kind == "glm_moe_dsa" else 4)
    differing = pairs = 0
    for module, given, _, theirs in calls:
        seen = given[3].expand(theirs.shape[0], -1, -1)
        # A prefill: all keys are those of this call. By the class, as the patch will be in place.
        keys = _keys(module, given)
        made = patch(model, "native")
        assert made.active
        ours = module(*given, None)
        unpatch(model)
        assert not made.fallbacks
        differing += compare(module, given, keys, theirs, ours, seen)
        pairs += int(seen.sum(-1).clamp(max=topk).sum())
    print(f"{kind}, {length} tokens: {differing} of {pairs} ids differ, all within rounding")
    assert differing <= pairs * 1e-3


def _keys(module: Any, given: Any) -> Any:
    """The keys that a call adds, taken from the cache that the original fills."""

    class Cache:
        def update_indexer(self, k: Any, layer: int) -> Any:
            self.k = k
            return k

    cache = Cache()
    type(module).forward(module, *given[:5], cache)
    return cache.k


@pytest.mark.parametrize("kind", dsa_models.KINDS)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("length", [200, LONG])
def test_native_generates_the_same_tokens(kind: str, cache: str, length: int) -> None:
    if length > 1000 and cache == "static":
        pytest.skip("the same code at a length that takes long")
    model = dsa_models.make(kind, index_topk=48 if length < 1000 else 512)
    inputs = dsa_models.tokens(length, batch=2 if length < 1000 else 1)
    options = {"max_new_tokens": 12, "do_sample": False, "cache_implementation": cache}
    options["disable_compile"] = True  # a static cache on a GPU is compiled otherwise, for minutes
    expected = model.generate(**inputs, **options)
    assert len(expected[0, length:].unique()) > 1, "nothing to compare"
    with patch(model, "native") as made:
        assert torch.equal(model.generate(**inputs, **options), expected)
        assert made.calls["native"]
        assert not made.fallbacks
        if cache == "dynamic":  # the prompt in pieces, each after the cache of those before
            chunked = model.generate(**inputs, **options, prefill_chunk_size=77)
            assert torch.equal(chunked, expected)
    assert torch.equal(model.generate(**inputs, **options), expected)


@pytest.mark.parametrize("kind", dsa_models.KINDS)
@pytest.mark.parametrize("attention", ["blocks", "model"])
@pytest.mark.parametrize("mode", ["native", "fp8"])
def test_logits_of_contexts_that_are_attended_in_full(kind: str, attention: Any, mode: Any) -> None:
    """No more keys than K: there is nothing to select, so the model must be what it was."""
    model = dsa_models.make(kind, index_topk=400)
    inputs = dsa_models.tokens(300)
    expected = model(**inputs).logits
    with patch(model, mode, attention=attention, mib=1) as made:
        found = model(**inputs).logits
        assert set(made.calls) == {"all keys"}
    valid = inputs["attention_mask"].bool()
    torch.testing.assert_close(found[valid], expected[valid], atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", dsa_models.KINDS)
@pytest.mark.parametrize("padding", ["left", "right", "both", "middle"])
@pytest.mark.parametrize("scale_format", ["ue8m0", "fp32"])
def test_fp8_is_the_best_of_the_quantised_scores(
    kind: str, padding: str, scale_format: Any
) -> None:
    """Against all scores of the same codes, from the definition in fp64."""
    model = dsa_models.make(kind)
    inputs = dsa_models.tokens(260)
    mask = inputs["attention_mask"]
    mask[:] = 1
    if padding in ("left", "both"):
        mask[1, :60] = 0
    if padding in ("right", "both"):
        mask[1, -50:] = 0
    if padding == "middle":
        mask[1, 100:130] = 0
    # Only the first layer has the same inputs with and without a patch.
    recorder = Recorder(model)
    with patch(model, "fp8", scale_format=scale_format, rows=100) as made:
        model(**inputs)
        assert not made.fallbacks
        assert (made.visible > 0) == ON_HOST  # a device does not count
        assert made.fully_scored <= made.visible
    module, given, _, ours = recorder.stop()[0]
    seen = given[3].tensor()[:, 0]
    expected = quantised_scores(module, given, scale_format).masked_fill(~seen, -torch.inf)
    for b in range(2):
        for row in range(260):
            kept = min(48, int(seen[b, row].sum()))
            found = sorted(i for i in ours[b, row].tolist() if seen[b, row, i])
            assert len(found) == kept
            if kept == 0:
                continue
            least = float(expected[b, row, found].min())
            margin = TOLERANCE * float(expected[b, row, found].abs().max())
            over = expected[b, row] > least + margin
            assert set(over.nonzero()[:, 0].tolist()) <= set(found)


def quantised_scores(module: Any, given: Any, scale_format: str) -> Any:
    """k_scale * sum_h w q_scale max(0, codes . codes), scales and codes made here."""
    hidden, q_resid, (cos, sin) = given[:3]
    modeling = __import__(type(module).__module__, fromlist=["x"])
    glm = type(module).__name__.startswith("Glm")
    rotate = getattr(modeling, "apply_rotary_pos_emb" + ("_interleave" if glm else ""))
    part = module.qk_rope_head_dim

    def quantised(x: Any) -> tuple[Any, Any]:
        amax = x.double().abs().amax(-1, keepdim=True).clamp(min=1e-10) / 448
        scale = torch.exp2(torch.ceil(torch.log2(amax))) if scale_format == "ue8m0" else amax
        scale = scale.float().double()
        return (x.double() / scale).float().to(torch.float8_e4m3fn).double(), scale

    q = module.wq_b(q_resid).unflatten(-1, (module.n_heads, module.head_dim))
    turned, _ = rotate(q[..., :part], q[..., :part], cos, sin, unsqueeze_dim=2)
    q, q_scale = quantised(torch.cat((turned, q[..., part:]), -1))
    k, k_scale = quantised(_keys(module, (*given[:3], given[3].tensor()[:, 0], given[4])))
    weights = module.weights_proj(hidden).double() * (module.n_heads * module.head_dim) ** -0.5
    dots = torch.einsum("bshd,btd->bsht", q, k).relu()
    scores = torch.einsum("bsh,bsht->bst", weights * q_scale[..., 0], dots)
    return scores * k_scale[:, None, :, 0]


def test_eager_models_keep_their_attention_and_masks() -> None:
    model = dsa_models.make("glm_moe_dsa", "eager")
    inputs = dsa_models.tokens(200)
    expected = model.generate(**inputs, max_new_tokens=6, do_sample=False)
    with patch(model, "native") as made:
        assert model.config._attn_implementation == "eager"
        assert torch.equal(model.generate(**inputs, max_new_tokens=6, do_sample=False), expected)
        assert not made.fallbacks
        weights = model(**inputs, output_attentions=True).attentions
        assert weights[0].shape == (2, 4, 200, 200)


def test_packed_sequences_are_windows() -> None:
    """Positions that start again, without a mask: two sequences in one row."""
    model = dsa_models.make("glm_moe_dsa")
    ids = dsa_models.tokens(240, batch=1, padding=0)["input_ids"]
    positions = torch.cat((torch.arange(150), torch.arange(90)))[None]
    given = {"input_ids": ids, "position_ids": positions, "use_cache": False}
    recorder = Recorder(model)
    model(**given)
    expected = recorder.stop()[0][3]
    recorder = Recorder(model)
    with patch(model, "native") as made:
        model(**given)
        assert not made.fallbacks
    module, inputs, _, ours = recorder.stop()[0]
    seen = inputs[3].tensor()[:, 0]
    assert not bool(seen[0, 150:, :150].any())
    inputs = (*inputs[:3], seen, inputs[4])
    compare(module, inputs, _keys(module, inputs), expected, ours, seen)


def test_calls_that_are_left_to_the_original() -> None:
    model = dsa_models.make("glm_moe_dsa")
    inputs = dsa_models.tokens(150)
    with patch(model) as made:
        model.train()
        with torch.enable_grad():
            loss = model(**inputs, labels=inputs["input_ids"]).loss
            loss.backward()
        assert made.fallbacks == {"training mode": 3}
        assert model.model.layers[0].self_attn.kv_b_proj.weight.grad is not None
        model.eval()
        made.fallbacks.clear()
        bias = torch.randn((2, 1, 150, 150)).masked_fill(
            torch.ones((150, 150)).triu(1).bool(), torch.finfo(torch.float32).min
        )
        found = model(inputs["input_ids"], attention_mask=bias).logits
        assert made.fallbacks == {"an additive mask with other values than 0 and forbidden": 3}
        assert not made.calls
    torch.testing.assert_close(found, model(inputs["input_ids"], attention_mask=bias).logits)


@pytest.mark.parametrize("boolean", [True, False])
def test_masks_that_are_given_whole(boolean: bool) -> None:
    """A 4-D mask of the caller's, with holes: rows that see no run of keys."""
    model = dsa_models.make("glm_moe_dsa")
    ids = dsa_models.tokens(150)["input_ids"]
    seen = (
        torch.rand((2, 1, 150, 150), generator=torch.Generator(dsa_models.DEVICE).manual_seed(2))
        < 0.6
    )
    seen = (seen & torch.ones((150, 150)).tril().bool()) | torch.eye(150).bool()
    least = torch.finfo(torch.float32).min
    mask = seen if boolean else torch.zeros(seen.shape).masked_fill(~seen, least)
    recorder = Recorder(model)
    expected = model(ids, attention_mask=mask).logits
    module, given, _, theirs = recorder.stop()[0]
    with patch(model, "native") as made:
        ours = module(*given, None)
        found = model(ids, attention_mask=mask).logits
        assert not made.fallbacks
    compare(module, given, _keys(module, given), theirs, ours, seen[:, 0])
    assert float((found - expected).abs().median()) < 1e-4
    with patch(model, "fp8") as made:
        model(ids, attention_mask=mask)
        reason = "rows that see no contiguous run of keys: scored natively"
        assert made.fallbacks == {reason: 6}  # three indexers, two sequences


def test_training_computes_what_it_did() -> None:
    model = dsa_models.make("deepseek_v32").train()
    inputs = dsa_models.tokens(120)
    with torch.enable_grad():
        expected = model(**inputs, labels=inputs["input_ids"]).loss
        with patch(model):
            found = model(**inputs, labels=inputs["input_ids"]).loss
    assert torch.equal(found, expected)


def test_shapes_that_the_engine_does_not_take_are_scored_natively() -> None:
    model = dsa_models.make("deepseek_v32", index_head_dim=24)
    inputs = dsa_models.tokens(150)
    with patch(model, "fp8") as made, patch(model, "native"):
        pass
    expected = model.generate(**inputs, max_new_tokens=4, do_sample=False)
    with patch(model, "fp8") as made:
        assert torch.equal(model.generate(**inputs, max_new_tokens=4, do_sample=False), expected)
        assert set(made.fallbacks) == {"a head dimension of 24: scored natively"}


def test_bfloat16() -> None:
    model = dsa_models.make("glm_moe_dsa").to(torch.bfloat16)
    inputs = dsa_models.tokens(200)
    recorder = Recorder(model)
    model(**inputs)
    module, given, _, theirs = recorder.stop()[0]
    with patch(model, "native"):
        ours = module(*given, None)
    compare(module, given, _keys(module, given), theirs, ours, given[3].expand(2, -1, -1))
