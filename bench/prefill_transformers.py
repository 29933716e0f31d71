# SPDX-License-Identifier: Apache-2.0
"""Peak memory and time to the first token of a small DSA model, as it is and patched.

    python bench/prefill_transformers.py [--context 4096 ...] [--side native ...] [--limit-gib 12]

Needs torch and transformers. The model is `glm_moe_dsa` with random weights: 4 layers (3 of them
with an indexer of 32 heads of 128, K = 2048), hidden size 256, 4 attention heads of 128, fp32. A
measurement is a process of its own, whose private memory is limited. Printed: peak resident memory
above that of the loaded model, and seconds until the token behind the prompt is known.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

SIDES = ("unpatched", "unpatched chunked", "native", "fp8", "fp8 chunked")
CHUNK = 512
GIB = 1 << 30


def build() -> Any:
    """Return the model."""
    import torch
    from transformers import GlmMoeDsaConfig, GlmMoeDsaForCausalLM

    torch.manual_seed(1)
    config = GlmMoeDsaConfig(
        vocab_size=1024,
        hidden_size=256,
        intermediate_size=512,
        moe_intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        kv_lora_rank=128,
        q_lora_rank=192,
        qk_rope_head_dim=64,
        qk_nope_head_dim=64,
        v_head_dim=128,
        n_routed_experts=8,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
        indexer_types=["full", "full", "shared", "full"],
        bos_token_id=None,
        eos_token_id=None,
    )
    config._attn_implementation = "sdpa"
    return GlmMoeDsaForCausalLM(config).eval()


def resident() -> int:
    """Return the bytes of memory that this process occupies."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize()


class Peak:
    """The most memory occupied meanwhile, looked at every 5 ms."""

    def __enter__(self) -> Peak:
        self.before = self.most = resident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            self.most = max(self.most, resident())

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def measure(side: str, context: int) -> dict[str, object]:
    """Prefill and return peak bytes and seconds."""
    import torch

    model = build()
    tokens = torch.randint(2, 1024, (1, context), generator=torch.Generator().manual_seed(0))
    options = {"prefill_chunk_size": CHUNK} if side.endswith("chunked") else {}
    kind = side.split(maxsplit=1)[0]
    handle = None
    if kind != "unpatched":
        from dosa.integrations.transformers import patch

        handle = patch(model, kind)
        assert handle.active, handle.problem
    short = tokens[:, :64]  # what the first call allocates for good
    model.generate(short, max_new_tokens=1, do_sample=False)
    with Peak() as peak:
        started = time.perf_counter()
        token = model.generate(tokens, max_new_tokens=1, do_sample=False, **options)[0, -1]
        seconds = time.perf_counter() - started
    report = {"gib": (peak.most - peak.before) / GIB, "seconds": seconds, "token": int(token)}
    if handle is not None:
        report["fallbacks"] = dict(handle.fallbacks)
        if handle.visible:
            report["fully_scored"] = handle.fully_scored / handle.visible
    return report


def main() -> None:
    """Run the measurements that are asked for and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--context", type=int, nargs="+", default=[4096, 8192, 16384])
    parser.add_argument("--side", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--limit-gib", type=float, default=12)
    parser.add_argument("--child", action="store_true")
    given = parser.parse_args()
    if given.child:
        limit = int(given.limit_gib * GIB)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        print(json.dumps(measure(given.side[0], given.context[0])))
        return
    print(f"{'context':>8}  {'side':<18} {'GiB':>7} {'seconds':>8}")
    for context in given.context:
        for side in given.side:
            command = [sys.executable, __file__, "--child", "--side", side, "--context"]
            command += [str(context), "--limit-gib", str(given.limit_gib)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                reason = done.stderr.strip().splitlines()[-1]
                print(f"{context:>8}  {side:<18} failed: {reason}", flush=True)
                continue
            report = json.loads(done.stdout.splitlines()[-1])
            extra = {k: v for k, v in report.items() if k not in ("gib", "seconds")}
            line = f"{context:>8}  {side:<18} {report['gib']:>7.2f} {report['seconds']:>8.1f}"
            print(line, extra, flush=True)


if __name__ == "__main__":
    main()
