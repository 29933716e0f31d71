# SPDX-License-Identifier: Apache-2.0
"""DoSA inside other projects: transformers, vLLM, SGLang.

Every integration imports the other project when it is switched on, not before. It checks what it
found against the releases it was written for, steps aside with an `IntegrationWarning` that names
both where they differ, and counts each time it had to leave a call to the original code.

The environment variable ``DOSA_DISABLE`` switches integrations off without a change of code: a
comma-separated list of their names, or ``all``.
"""

from __future__ import annotations

from dosa.integrations._guard import IntegrationWarning

__all__ = ["IntegrationWarning"]
