"""Random features of the Gaussian kernel on the unit sphere, with a learned gate (RFA-Gate)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from kernelformer.feature_maps.sphere import SphereFeatureMap
from kernelformer.features import Features

__all__ = ["RfaGated"]

# Kept per token at the start: sigmoid(5) = 0.993, a memory of about 150 tokens.
_START = 5.0


class RfaGated(SphereFeatureMap):
    """The features of ``rfa``, under sums that forget: S_t = g_t S_{t-1} + (1 - g_t) phi(k_t) v_tᵀ.

    g_t = sigmoid(w·k_t + b), learned per head, w = 0 and b = 5 at the start. The paper computes the gate from the
    input of the layer; a feature map sees the key, which is a projection of it.

    Domain and numerics: signed, ‖values‖ = 1; causal attention only. log g_t is handed to the engine as
    ``log_decay``, log(1 - g_t) as ``log_scale``: no product of gates is formed, so none underflows. The engine keeps
    the denominator above ``floor`` times the key mass, which is gated alike.

    Args:
        num_features: M, even.
        temperature: width of the kernel on the sphere, positive.
        floor: the floor relative to the key mass, in (0, 1].
        generator: draws omega; None is a fresh generator of seed 0. Redraw by ``redraw``.

    Shape:
        [B, H, N, D] -> values [B, H, N, M]; for keys log_scale and log_decay [B, H, N]; omega [H, D, M/2];
        sigma [H, 1, D]; gate_weight [H, D, 1]; gate_bias [H, 1].

    References:
        Peng et al. 2021, arXiv 2103.02143.

    Example:
        >>> import torch
        >>> gated = RfaGated(head_dim=4, num_heads=1, num_features=6)
        >>> gated.map_k(torch.ones(1, 1, 2, 4)).log_decay.exp()
        tensor([[[0.9933, 0.9933]]], grad_fn=<ExpBackward0>)
    """

    name = "rfa_gated"
    is_gated = True

    def add_parameters(self) -> None:
        self.gate_weight = nn.Parameter(torch.empty(self.num_heads, self.head_dim, 1))
        self.gate_bias = nn.Parameter(torch.empty(self.num_heads, 1))

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        super().reset_parameters(generator)
        self.gate_weight.zero_()
        self.gate_bias.fill_(_START)

    def phi(self, x: Tensor) -> Features:
        gate = (x @ self.gate_weight.to(x.dtype))[..., 0] + self.gate_bias.to(x.dtype)
        return Features(self.values(x), logsigmoid(-gate), logsigmoid(gate))

    def phi_q(self, x: Tensor) -> Features:
        return Features(self.values(x))
