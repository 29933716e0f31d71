# SPDX-License-Identifier: Apache-2.0
"""Small DSA models of transformers with random weights."""

from __future__ import annotations

import os
from typing import Any

import torch
import transformers

KINDS = ("glm_moe_dsa", "deepseek_v32")
# Where models and prompts lie: DOSA_TEST_DEVICE=cuda runs the same tests on a GPU.
DEVICE = os.environ.get("DOSA_TEST_DEVICE", "cpu")


def make(kind: str, implementation: str = "sdpa", **changes: Any) -> Any:
    """A model of four layers, one of which is "shared" where the type knows that."""
    glm = kind == "glm_moe_dsa"
    sizes: dict[str, Any] = {
        "vocab_size": 256,
        "hidden_size": 64,
        "intermediate_size": 96,
        "moe_intermediate_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "kv_lora_rank": 32,
        "q_lora_rank": 48,
        "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 16,
        "v_head_dim": 32 if glm else 16,  # equal to that of keys, and not: two kernels of torch
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
        "index_topk": 48,
        "index_head_dim": 32,
        "index_n_heads": 8,
        "max_position_embeddings": 8192,
        "bos_token_id": None,
        "eos_token_id": None,
        **({"indexer_types": ["full", "full", "shared", "full"]} if glm else {}),
    }
    name = "GlmMoeDsa" if glm else "DeepseekV32"
    config = getattr(transformers, f"{name}Config")(**{**sizes, **changes})
    config._attn_implementation = implementation
    torch.manual_seed(1)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():  # the usual initial weights make all scores and tokens nearly equal
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.mul_(8)
    return model.to(DEVICE)


def tokens(length: int, batch: int = 2, padding: int = 60) -> dict[str, Any]:
    """Prompts, the last of them with padding on the left."""
    made = torch.Generator().manual_seed(7)
    ids = torch.randint(2, 256, (batch, length), generator=made, device="cpu").to(DEVICE)
    mask = torch.ones_like(ids)
    mask[-1, :padding] = 0
    return {"input_ids": ids, "attention_mask": mask}


def indexers(model: Any) -> list[Any]:
    return [module for module in model.modules() if type(module).__name__.endswith("Indexer")]
