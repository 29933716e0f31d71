# SPDX-License-Identifier: Apache-2.0
"""The numbered example for a GPU, as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from device_inputs import NEEDED

pytestmark = NEEDED


def test_the_example(root: Path) -> None:
    command = [sys.executable, str(root / "examples" / "06_torch_gpu.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    lines = done.stdout.splitlines()
    assert lines[0] == "(512, 2048) torch.int32 on cuda:0"
    assert lines[1:] == ["same ids as from all scores: True", "compiled: True", "replayed: True"]
