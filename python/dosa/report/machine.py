# SPDX-License-Identifier: Apache-2.0
"""What measured: the machine and the build. Nothing here names the machine or its user."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import subprocess
from pathlib import Path
from typing import Any


def machine_facts() -> dict[str, Any]:
    """Return what the system says about itself; fields that it does not know are left out."""
    system = platform.uname()
    facts: dict[str, Any] = {
        "system": f"{system.system} {system.release} {system.machine}",
        "processor": _first_line("/proc/cpuinfo", "model name"),
        "processors": os.cpu_count(),
        "usable": len(os.sched_getaffinity(0)),
        "memory_kib": _number(_first_line("/proc/meminfo", "MemTotal")),
        "gpu_driver": next(iter(_gpu("driver_version") or []), None),
        "governor": _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    }
    return {name: value for name, value in facts.items() if value is not None}


def state_facts() -> dict[str, Any]:
    """Return what changes while one measures: clocks seen, and how busy the machine is."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    clocks = [float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz")]
    facts: dict[str, Any] = {"load_1min": os.getloadavg()[0]}
    if clocks:
        facts["mhz"] = [min(clocks), max(clocks)]
    gpu = _gpu("clocks.sm,power.draw")
    if gpu is not None and len(gpu) == 2:
        with contextlib.suppress(ValueError):  # "[N/A]" where a card does not tell
            facts["gpu"] = {"mhz": float(gpu[0]), "watts": float(gpu[1])}
    return facts


def _gpu(fields: str) -> list[str] | None:
    """Return what nvidia-smi says about the first card; None where there is none."""
    words = ["nvidia-smi", "-i", "0", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        result = subprocess.run(words, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return [part.strip() for part in result.stdout.strip().split(",")]


def build_facts(command: str, commit: str | None) -> dict[str, str]:
    """Return which build this is: a hash of the command, and the commit where it is known."""
    with open(command, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    facts = {"sha256": digest}
    known = commit or _commit()
    if known:
        facts["commit"] = known
    return facts


def _commit() -> str | None:
    """Return the commit of the folder that this is called in, if that is this project."""
    if not Path("include/dosa/dosa.h").is_file():
        return None
    words = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        result = subprocess.run(words, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip() or None


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _first_line(path: str, name: str) -> str | None:
    """Return what follows `name:` in a file of such lines."""
    for line in (_text(path) or "").splitlines():
        if line.startswith(name):
            return line.split(":", 1)[1].strip()
    return None


def _number(text: str | None) -> int | None:
    return None if text is None else int(text.split()[0])
