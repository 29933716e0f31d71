# SPDX-License-Identifier: Apache-2.0
"""`python -m dosa doctor` is the command's."""

from __future__ import annotations

import json
import subprocess
import sys

import dosa


def test_python_passes_doctor_through() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dosa", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["version"] == dosa.__version__
    assert report["check"]["exact"] is True
