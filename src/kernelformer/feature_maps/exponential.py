"""What the positive exponential maps share: exp(p) without overflow. Not a map itself."""

from __future__ import annotations

import math

from torch import Tensor

from kernelformer.features import Features

__all__ = ["exponential_features"]


def exponential_features(exponents: Tensor, offset: Tensor) -> Features:
    """phi_r = exp(exponents_r + offset) / sqrt(M), the largest exponent moved to log_scale.

    Shape:
        exponents [B, H, N, M]; offset [B, H, N].
    """
    top = exponents.detach().amax(-1, keepdim=True)
    log_scale = top[..., 0] + offset - 0.5 * math.log(exponents.shape[-1])
    # Base two, in place: torch's exp of float32 takes four times as long as its exp2 on CPUs that are not Intel's.
    return Features((exponents - top).mul_(1.0 / math.log(2.0)).exp2_(), log_scale)
