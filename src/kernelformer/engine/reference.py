"""The definition that every fast path must meet: quadratic, float64, no trick."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.engine.state import Attended, normalise
from kernelformer.features import Features

__all__ = ["attend_reference"]


def attend_reference(q: Features, k: Features, v: Tensor, *, causal: bool = False, floor: float = 0.0) -> Attended:
    """out_i = Σ_j w_ij v_j / max(Σ_j w_ij, floor · Σ_j exp(log_scale_j)), in float64.

    w_ij = (values_q_i · values_k_j) · exp(log_scale_j - m_i), m_i the largest log_scale that row i
    may see; all of it cancels in the ratio but keeps exp finite. Causal rows see j <= i, and a key's log_decay
    multiplies what all later rows see of the keys before it.

    Shape:
        q.values [B, Hq, N, M]; k.values [B, H, S, M] with Hq a multiple of H; v [B, H, S, Dv].
        Causal needs N = S. Returns float64.
    """
    groups = q.values.shape[1] // k.values.shape[1]
    q_values = q.values.double()
    k_values = k.values.double().repeat_interleave(groups, dim=1)
    v = v.double().repeat_interleave(groups, dim=1)
    logs = torch.zeros_like(k_values[..., 0]) if k.log_scale is None else k.log_scale.double()
    if k.log_decay is not None:
        logs = logs - k.log_decay.double().cumsum(-1)
    if logs.shape[1] != q_values.shape[1]:
        logs = logs.repeat_interleave(groups, dim=1)
    logs = logs[..., None, :].expand(*q_values.shape[:-1], logs.shape[-1])
    if causal:
        seen = torch.ones(logs.shape[-2:], dtype=torch.bool, device=v.device).tril()
        logs = logs.masked_fill(~seen, -torch.inf)
    if logs.shape[-1] == 0:
        return Attended(
            v.new_zeros(*q_values.shape[:-1], v.shape[-1]), torch.zeros_like(q_values[..., 0], dtype=torch.bool)
        )
    top = logs.detach().amax(-1, keepdim=True)
    weights = torch.exp(logs - torch.where(top.isinf(), 0.0, top))
    kernel = (q_values @ k_values.transpose(-1, -2)) * weights
    return normalise(kernel @ v, kernel.sum(-1), weights.sum(-1), floor)
