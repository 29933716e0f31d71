# SPDX-License-Identifier: Apache-2.0
"""Which devices an engine of this package serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dosa import _core

if TYPE_CHECKING:
    import torch

# Their tensor cores compute the score model `sm90`, as DeepGEMM's kernels do there.
CAPABILITY = (9, 0)


def engine_problem(device: torch.device | str) -> str | None:
    """Return why no engine of this package serves tensors on a device, or None."""
    import torch

    kind = torch.device(device).type
    if kind == "cpu":
        return None
    if kind != "cuda":
        return f"device: found {kind}, expected cpu or cuda"
    if not _core.HAS_DEVICE:
        return "dosa: found no device engine in this package, expected one"
    if not torch.cuda.is_available():
        return "device: found no CUDA device, expected one"
    found = torch.cuda.get_device_capability(device if torch.device(device).index else None)
    if found != CAPABILITY:
        expected = ".".join(map(str, CAPABILITY))
        return f"device: found compute capability {found[0]}.{found[1]}, expected {expected}"
    return None
