# SPDX-License-Identifier: Apache-2.0
"""`python -m dosa ...` and the script `dosa`: become the command."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def command() -> str:
    """Return the path of the command that came with the package."""
    return os.path.join(os.path.dirname(__file__), "bin", "dosa")


def main() -> NoReturn:
    """Replace this process by the command, with the same arguments."""
    path = command()
    if not os.path.isfile(path):
        sys.exit(f"dosa: found no command at {path}, expected the one that is installed with it")
    os.execv(path, ["dosa", *sys.argv[1:]])


if __name__ == "__main__":
    main()
