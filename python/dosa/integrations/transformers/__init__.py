# SPDX-License-Identifier: Apache-2.0
"""DeepSeek Sparse Attention models of Hugging Face transformers, with DoSA's selection.

    from dosa.integrations.transformers import patch

    with patch(model) as dosa_patch:
        model.generate(...)
    print(dosa_patch)

Models of type `glm_moe_dsa` and `deepseek_v32`, transformers 5.17 to 5.24; see `patch` and
docs/integrations.md.
"""

from __future__ import annotations

from dosa.integrations.transformers._patch import Patch, patch, unpatch

__all__ = ["Patch", "patch", "unpatch"]
