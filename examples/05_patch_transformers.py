# SPDX-License-Identifier: Apache-2.0
"""Let DoSA select the keys of a transformers model, and compare with the model as it was.

Run after `pip install . torch transformers`: python examples/05_patch_transformers.py
"""

import sys

try:
    import torch
    from transformers import GlmMoeDsaConfig, GlmMoeDsaForCausalLM
except ImportError as error:
    print(f"nothing to show without torch and transformers 5.17 or later: {error}")
    sys.exit()

from dosa.integrations.transformers import patch

# A small model with random weights; `from_pretrained` gives one that is worth more.
torch.manual_seed(0)
config = GlmMoeDsaConfig(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=96,
    moe_intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    kv_lora_rank=32,
    q_lora_rank=48,
    qk_rope_head_dim=16,
    qk_nope_head_dim=16,
    v_head_dim=32,
    n_routed_experts=4,
    num_experts_per_tok=2,
    first_k_dense_replace=1,
    index_topk=64,
    index_head_dim=32,
    index_n_heads=8,
    bos_token_id=None,
    eos_token_id=None,
)
model = GlmMoeDsaForCausalLM(config).eval()
prompt = {"input_ids": torch.randint(2, 256, (1, 500))}
options = {"max_new_tokens": 8, "do_sample": False}
before = model.generate(**prompt, **options)

# The model's own scores, every key with all heads, without the buffers: the same tokens.
with patch(model, "native") as patched:
    after = model.generate(**prompt, **options)
print("native: same tokens:", torch.equal(before, after))
print(patched)

# Scores of queries and keys in e4m3, as serving engines compute them: another score model.
with patch(model) as patched:
    model.generate(**prompt, **options)
spared = 1 - patched.fully_scored / patched.visible
print(f"fp8: {spared:.0%} of the pairs of a query and a visible key were never scored in full")

# Every call that could not be served as asked for is counted here.
print("fallbacks:", dict(patched.fallbacks))
