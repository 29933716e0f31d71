# SPDX-License-Identifier: Apache-2.0
"""Quantisation of indexer queries and keys to e4m3, as serving engines do it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

ScaleFormat = Literal["ue8m0", "fp32"]
SCALE_FORMATS = ("ue8m0", "fp32")

E4M3_MAX = 448.0
# The least magnitude that a scale is made for, so that a zero vector has a scale (vLLM's value).
LEAST_AMAX = 1e-10


def quantise(x: Tensor, scale_format: ScaleFormat = "ue8m0") -> tuple[Tensor, Tensor]:
    """Return e4m3 codes and one scale per vector.

    Parameters
    ----------
    x : (..., D) floating point tensor
        Vectors along the last dimension.
    scale_format : {"ue8m0", "fp32"}
        The scale is max(amax, 1e-10) / 448, rounded up to a power of two for "ue8m0", the format
        of DeepSeek's checkpoints.

    Returns
    -------
    codes : (..., D) float8_e4m3fn
        ``x / scale`` rounded to nearest even, clamped to +-448; NaN stays NaN.
    scales : (...) float32
        ``x`` is about ``codes * scale``.
    """
    import torch

    wide = x.float()
    least, most = torch.aminmax(wide, dim=-1)
    scales = torch.maximum(most, -least).clamp_(min=LEAST_AMAX) / E4M3_MAX
    if scale_format == "ue8m0":
        mantissa, exponent = torch.frexp(scales)
        exponent = exponent - (mantissa == 0.5).to(exponent.dtype)  # already a power of two
        scales = torch.ldexp(torch.ones_like(scales), exponent)
    codes = (wide / scales.unsqueeze(-1)).clamp_(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)
    return codes, scales
