# SPDX-License-Identifier: Apache-2.0
"""Peak memory and time to the first token of a small DSA model, as it is and patched.

    python bench/prefill_transformers.py [--context 4096 ...] [--side native ...] [--limit-gib 12]

Needs torch and transformers. The model is `glm_moe_dsa` with random weights: 4 layers (3 of them
with an indexer of 32 heads of 128, K = 2048), hidden size 256, 4 attention heads of 128, fp32 (bf16
on a device); `--kind deepseek_v32` is the same size. A measurement is a process of its own, whose
memory is limited, on the host; on a device all share one. Printed: peak memory above that of the
loaded model, resident or held by torch on the device, and seconds until the token behind the prompt
is known (on a device of the second of two runs, unless the first took longer than 4 s).
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

SIDES = ("unpatched", "unpatched chunked", "native", "fp8", "fp8 chunked")
CHUNK, DEVICE_CHUNK = 512, 4096
LONG_SECONDS = 4  # what takes longer needs no warm-up
GIB = 1 << 30


def build(kind: str, device: str) -> Any:
    """Return the model."""
    import torch
    import transformers

    torch.manual_seed(1)
    glm = kind == "glm_moe_dsa"
    name = "GlmMoeDsa" if glm else "DeepseekV32"
    config = getattr(transformers, f"{name}Config")(
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
        n_group=1,
        topk_group=1,
        index_topk=2048,
        index_head_dim=128,
        index_n_heads=32,
        max_position_embeddings=1 << 20,
        bos_token_id=None,
        eos_token_id=None,
        **({"indexer_types": ["full", "full", "shared", "full"]} if glm else {}),
    )
    config._attn_implementation = "sdpa"
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    return model.to(device, torch.bfloat16) if device != "cpu" else model


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


class DevicePeak:
    """The most memory that torch held on the device meanwhile."""

    def __enter__(self) -> DevicePeak:
        import torch

        self._torch = torch
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        self.before = torch.cuda.memory_allocated()
        return self

    def __exit__(self, *_: object) -> None:
        self.most = self._torch.cuda.max_memory_allocated()


def measure(side: str, context: int, kind_of_model: str, device: str) -> dict[str, object]:
    """Prefill and return peak bytes and seconds."""
    import torch

    on_host = device == "cpu"
    model = build(kind_of_model, device)
    made = torch.Generator().manual_seed(0)
    tokens = torch.randint(2, 1024, (1, context), generator=made).to(device)
    chunk = CHUNK if on_host else DEVICE_CHUNK
    options = {"prefill_chunk_size": chunk} if side.endswith("chunked") else {}
    kind = side.split(maxsplit=1)[0]
    handle = None
    if kind != "unpatched":
        from dosa.integrations.transformers import patch

        handle = patch(model, kind)
        assert handle.active, handle.problem
    short = tokens[:, :64]  # what the first call allocates for good
    model.generate(short, max_new_tokens=1, do_sample=False)
    peak: Peak | DevicePeak
    samples: list[float] = []
    while not samples or (len(samples) < 2 and not on_host and samples[0] <= LONG_SECONDS):
        with Peak() if on_host else DevicePeak() as peak:
            started = time.perf_counter()
            found = model.generate(tokens, max_new_tokens=1, do_sample=False, **options)
            token = int(found[0, -1])
            samples.append(time.perf_counter() - started)
    report = {"gib": (peak.most - peak.before) / GIB, "seconds": samples[-1], "token": token}
    report["samples"] = samples
    if handle is not None:
        report["fallbacks"] = dict(handle.fallbacks)
        if handle.visible:
            report["fully_scored"] = handle.fully_scored / handle.visible
    return report


def attempt(side: str, context: int, kind: str, device: str) -> dict[str, Any]:
    """Return what a measurement in this process reports, or what memory it lacked."""
    import torch

    try:
        return measure(side, context, kind, device)
    except torch.OutOfMemoryError as error:
        return {"failed": str(error).split(". ", maxsplit=1)[0]}
    finally:
        gc.collect()
        torch.cuda.empty_cache()


def run(command: list[str], seconds: float) -> dict[str, Any]:
    """Return what a measuring process reports, or how it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"failed": f"longer than {seconds:.0f} s"}
    if done.returncode != 0:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Run the measurements that are asked for and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--context", type=int, nargs="+", default=[4096, 8192, 16384])
    parser.add_argument("--side", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--limit-gib", type=float, default=12, help="of each process, on the host")
    parser.add_argument("--kind", default="glm_moe_dsa", choices=("glm_moe_dsa", "deepseek_v32"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, help="append one line of JSON for each measurement")
    parser.add_argument("--seconds", type=float, default=600, help="of each process, on the host")
    parser.add_argument("--child", action="store_true")
    given = parser.parse_args()
    if given.child:
        limit = int(given.limit_gib * GIB)
        if given.device == "cpu":
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        print(json.dumps(measure(given.side[0], given.context[0], given.kind, given.device)))
        return
    print(f"{'context':>8}  {'side':<18} {'GiB':>7} {'seconds':>8}")
    for context in given.context:
        for side in given.side:
            command = [sys.executable, __file__, "--child", "--side", side, "--context"]
            command += [str(context), "--limit-gib", str(given.limit_gib)]
            command += ["--kind", given.kind]
            if given.device == "cpu":
                report = run(command, given.seconds)
            else:
                report = attempt(side, context, given.kind, given.device)
            report |= {"kind": given.kind, "device": given.device, "side": side, "context": context}
            if given.out is not None:
                with given.out.open("a") as lines:
                    lines.write(json.dumps(report) + "\n")
            if "failed" in report:
                print(f"{context:>8}  {side:<18} failed: {report['failed']:.80}", flush=True)
                continue
            extra = {k: report[k] for k in ("token", "fallbacks", "fully_scored") if k in report}
            line = f"{context:>8}  {side:<18} {report['gib']:>7.2f} {report['seconds']:>8.1f}"
            print(line, extra, flush=True)


if __name__ == "__main__":
    main()
