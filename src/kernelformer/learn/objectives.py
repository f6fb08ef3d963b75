"""What one layer's kernel is taught: callables that compare it with softmax on the layer's own q, k and v.

Each is given to a converted model as ``model(**batch, layer_objective=..., output_attentions=True)``; the layer then
hands on the softmax output, and what the objective returns takes the place of its attention weights.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from kernelformer.attention import KernelAttention, LayerCall
from kernelformer.errors import KernelformerError
from kernelformer.features import Moments, softmax_scale

__all__ = ["FarMass", "MomentSums", "OutputError", "WeightCrossEntropy", "layer_values", "squared_errors"]


def layer_values(
    model: nn.Module, batch: Mapping[str, Tensor], objective: Callable[[LayerCall], Tensor]
) -> list[Tensor]:
    """The value of ``objective`` in every converted layer, of one pass on the model's device.

    Nobody looks at what the model gives, so a decoder leaves out all logits it can.
    """
    # Of the model itself: what wraps it for many processes takes anything.
    known = inspect.signature(getattr(model, "module", model).forward).parameters
    spared = {name: value for name, value in (("logits_to_keep", 1), ("use_cache", False)) if name in known}
    device = next(model.parameters()).device
    moved = {name: part.to(device) for name, part in batch.items()}
    outputs = model(**spared, **moved, layer_objective=objective, output_attentions=True)
    return [value for value in outputs.attentions if value is not None]


class OutputError:
    """‖kernel output - softmax output‖² / ‖softmax output‖² over the real tokens of a batch; memory linear in N.

    A row of a signed map that meets the floor has weights Σ_j w_ij below one. For such maps ``clearance`` times the
    mean of (1 - Σ_j w_ij)² is added, which is zero as long as no row does.
    """

    def __init__(self, clearance: float = 0.3) -> None:
        self.clearance = clearance

    def __call__(self, call: LayerCall) -> Tensor:
        if call.kernel.feature_map.is_positive or not self.clearance:
            sums = squared_errors(call)
            return sums[0] / sums[1]
        # A column of ones among the values becomes the sums of the weights.
        v = torch.cat([call.v, torch.ones_like(call.v[..., :1])], dim=-1)
        out = call.kernel(call.q, call.k, v, call.key_mask, call.scale).float()
        sums = _squared(out[..., :-1], call.softmax.float(), call.key_mask)
        missing = (1.0 - out[..., -1]).square().mean(1)
        if call.key_mask is not None:
            missing = missing[call.key_mask]
        value: Tensor = sums[0] / sums[1] + self.clearance * missing.mean()
        return value


class WeightCrossEntropy:
    """-mean_i Σ_j softmax_ij log w_ij, the loss of Hedgehog and Flexformer, ``rows`` queries at a time.

    w_ij is the kernel's share φ(q_i)·φ(k_j) / max(Σ_l φ(q_i)·φ(k_l), floor · mass), kept above ``least`` so that
    the log of a signed kernel exists. Every block of rows is recomputed in the backward pass: memory linear in N.

    References:
        Zhang et al. 2024, arXiv 2402.04347; Zhang and Zhou 2026, arXiv 2606.27748.
    """

    def __init__(self, rows: int = 128, least: float = 1e-6) -> None:
        self.rows = rows
        self.least = least

    def __call__(self, call: LayerCall) -> Tensor:
        if call.kernel.causal:
            raise KernelformerError("the cross-entropy of weights is for bidirectional attention: use OutputError")
        q, key_mask = call.q, call.key_mask
        total = q.new_zeros((), dtype=torch.float32)
        for start in range(0, q.shape[2], self.rows):
            rows = slice(start, start + self.rows)
            real = None if key_mask is None else key_mask[:, rows]
            total = total + checkpoint(
                self._block, call.kernel, q[:, :, rows], call.k, key_mask, call.scale, real, use_reentrant=False
            )
        count = q.shape[0] * q.shape[2] if key_mask is None else key_mask.sum()
        return total / (count * q.shape[1])

    def _block(
        self,
        kernel: KernelAttention,
        q: Tensor,
        k: Tensor,
        key_mask: Tensor | None,
        scale: float | None,
        real: Tensor | None,
    ) -> Tensor:
        scores = (q @ k.transpose(-1, -2)).float() * softmax_scale(q.shape[-1], scale)
        if key_mask is not None:
            scores = scores.masked_fill(~key_mask[:, None, None, :], -torch.inf)
        # Values that are the rows of the identity make the output the weights themselves.
        eye = torch.eye(k.shape[2], device=k.device, dtype=k.dtype).expand(*k.shape[:2], -1, -1)
        weights = kernel(q, k, eye, key_mask, scale).float().clamp_min(self.least)
        entropy: Tensor = -(scores.softmax(-1).detach() * weights.log()).sum(-1)
        return entropy.sum() if real is None else (entropy * real[:, None]).sum()


class FarMass:
    """By what factor the kernel's weights of far keys fall short of softmax's, for attention with a window.

    Per head the mean over rows of log Σ_far exp(q·k) - log Σ_far k(q, k); returns zero to each layer. N × N weights.
    """

    def __init__(self) -> None:
        self._sums: dict[KernelAttention, tuple[Tensor, Tensor]] = {}

    def __call__(self, call: LayerCall) -> Tensor:
        kernel = call.kernel
        if kernel.log_mix is not None:
            short, count = (x.unflatten(0, (kernel.feature_map.num_heads, -1)).sum(1) for x in _shortfall(call))
            before = self._sums.get(kernel, (torch.zeros_like(short), torch.zeros_like(count)))
            self._sums[kernel] = (before[0] + short, before[1] + count)
        return call.q.new_zeros(())

    def means(self) -> dict[KernelAttention, Tensor]:
        """[H] of every layer with a window; 0 where no row had a far key."""
        return {kernel: short / count.clamp_min(1) for kernel, (short, count) in self._sums.items()}


class MomentSums:
    """Sums up the moments of scaled queries and keys of every layer; returns zero to each."""

    def __init__(self) -> None:
        self._sums: dict[KernelAttention, list[Tensor]] = {}

    def __call__(self, call: LayerCall) -> Tensor:
        kernel = call.kernel
        root = math.sqrt(softmax_scale(call.q.shape[-1], call.scale))
        parts = []
        for x in (call.q, call.k):
            tokens = _tokens(x * root, call.key_mask, kernel.feature_map.num_heads)
            parts += [tokens.sum(1), tokens.transpose(-1, -2) @ tokens, tokens.new_tensor(tokens.shape[1])]
        if kernel in self._sums:
            parts = [before + part for before, part in zip(self._sums[kernel], parts, strict=True)]
        self._sums[kernel] = parts
        return call.q.new_zeros(())

    def moments(self) -> dict[KernelAttention, Moments]:
        """The means, per layer."""
        found = {}
        for kernel, (q_sum, q_square, q_count, k_sum, k_square, k_count) in self._sums.items():
            means = (q_sum / q_count, k_sum / k_count, q_square / q_count, k_square / k_count)
            found[kernel] = Moments(*(x.float() for x in means))
        return found


def _shortfall(call: LayerCall) -> tuple[Tensor, Tensor]:
    """Σ over rows of the difference of logs, and the number of rows that see a far key; [Hq] each."""
    kernel, q, k = call.kernel, call.q.float(), call.k.float()
    groups, places = q.shape[1] // k.shape[1], torch.arange(q.shape[2], device=q.device)
    if kernel.feature_map.num_heads == q.shape[1]:
        k, groups = k.repeat_interleave(groups, dim=1), 1
    phi_q = kernel.feature_map.map_q(q, call.scale, places)
    phi_k = kernel.feature_map.map_k(k, call.scale, call.key_mask, places)
    product = phi_q.values @ phi_k.values.repeat_interleave(groups, dim=1).mT
    logs = product.clamp_min(torch.finfo(product.dtype).tiny).log()
    if phi_q.log_scale is not None:
        logs = logs + phi_q.log_scale[..., None]
    if phi_k.log_scale is not None:
        logs = logs + phi_k.log_scale.repeat_interleave(groups, dim=1)[:, :, None]
    root = math.sqrt(softmax_scale(q.shape[-1], call.scale))
    keys = (k * root - kernel.feature_map.key_shift.float()[:, None]).repeat_interleave(groups, dim=1)
    scores = (q * root) @ keys.mT
    far = places[:, None] - places >= kernel.window
    if call.key_mask is not None:
        far = far & call.key_mask[:, None, None, :] & call.key_mask[:, None, :, None]
    short = scores.masked_fill(~far, -torch.inf).logsumexp(-1) - logs.masked_fill(~far, -torch.inf).logsumexp(-1)
    seen = far.any(-1).expand_as(short)
    return short.masked_fill(~seen, 0.0).sum((0, 2)), seen.sum((0, 2))


def squared_errors(call: LayerCall) -> Tensor:
    """[2]: Σ ‖kernel output - softmax output‖² and Σ ‖softmax output‖² over real tokens, in float32."""
    out = call.kernel(call.q, call.k, call.v, call.key_mask, call.scale).float()
    return _squared(out, call.softmax.float(), call.key_mask)


def _squared(out: Tensor, wanted: Tensor, key_mask: Tensor | None) -> Tensor:
    difference, size = (out - wanted).square().sum((1, 3)), wanted.square().sum((1, 3))
    if key_mask is not None:
        difference, size = difference.masked_fill(~key_mask, 0.0), size.masked_fill(~key_mask, 0.0)
    return torch.stack([difference.sum(), size.sum()])


def _tokens(x: Tensor, key_mask: Tensor | None, num_heads: int) -> Tensor:
    """[B, H', N, D] -> [H, tokens, D] in float64, real tokens only.

    Query heads that share a map are put together; key heads seen by several maps are repeated.
    """
    heads = x.double().transpose(0, 1)
    heads = heads.flatten(1, 2) if key_mask is None else heads[:, key_mask]
    if heads.shape[0] < num_heads:
        return heads.repeat_interleave(num_heads // heads.shape[0], dim=0)
    return heads.reshape(num_heads, -1, x.shape[-1])
