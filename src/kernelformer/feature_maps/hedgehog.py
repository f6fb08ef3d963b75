"""Softmax of learned projections (Hedgehog)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kernelformer.feature_maps.checks import check_even
        return Features(logits.softmax(-1) if self.half_space else two_softmaxes(logits))

    def fused_form(self) -> FusedForm:
        bias = self.bias[:, 0]
        if self.half_space:
            return FusedForm(self.omega, bias, is_normalised=True)
        both = torch.cat([self.omega, -self.omega], dim=-1)
        return FusedForm(both, torch.cat([bias, -bias], dim=-1), groups=2, is_normalised=True)
