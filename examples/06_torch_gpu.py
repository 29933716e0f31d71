# SPDX-License-Identifier: Apache-2.0
"""Select the best keys of torch tensors on a Hopper GPU: eager, compiled, in a CUDA graph.

Run after `pip install .` where a CUDA compiler is found: python examples/06_torch_gpu.py
"""

import sys

try:
    import torch
except ImportError as error:
    print(f"nothing to show without torch: {error}")
    sys.exit()

import dosa
import dosa.torch  # registers torch.ops.dosa

QUERIES, KEYS, HEADS, DIM, K = 512, 65536, 32, 128, 2048
if not (torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)):
    print("no Hopper GPU here: nothing to show")
    sys.exit()

# A prefill chunk: the queries are the last tokens of the context and see what lies before them.
torch.manual_seed(0)
q = torch.randn((QUERIES, HEADS, DIM), device="cuda").to(torch.float8_e4m3fn)
k = torch.randn((KEYS, DIM), device="cuda")
k_scale = k.abs().amax(1) / 448
k = (k / k_scale[:, None]).to(torch.float8_e4m3fn)
weights = torch.randn((QUERIES, HEADS), device="cuda")
end = torch.arange(QUERIES, dtype=torch.int32, device="cuda") + KEYS - QUERIES + 1
start = torch.zeros_like(end)
inputs = (q, k, k_scale, weights, start, end)

# Ids on the device, ascending, -1 behind the last; enqueued on the current stream.
result = dosa.topk(*inputs, topk=K, scores=True)
print(f"{tuple(result.indices.shape)} {result.indices.dtype} on {result.indices.device}")

# The same keys from all scores, the way it is done without DoSA.
order = dosa.scores(*inputs).sort(dim=1, descending=True, stable=True).indices
print(
    "same ids as from all scores:", torch.equal(result.indices, order[:, :K].sort(1).values.int())
)


# torch.compile takes the operator without a graph break.
def best_of(*tensors: torch.Tensor) -> torch.Tensor:
    ids: torch.Tensor = torch.ops.dosa.topk(*tensors, K)
    return ids


compiled = torch.compile(best_of, fullgraph=True, backend="aot_eager")
print("compiled:", torch.equal(compiled(*inputs), result.indices))

# A CUDA graph, replayed with other queries.
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = torch.ops.dosa.topk(*inputs, K)
q.copy_(torch.randn(q.shape, device="cuda").to(torch.float8_e4m3fn))
graph.replay()
print("replayed:", torch.equal(captured, dosa.topk(*inputs, topk=K).indices))
