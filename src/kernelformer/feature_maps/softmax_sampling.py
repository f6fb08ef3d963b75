"""The softmax kernel, sampled where the data needs it."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.feature_maps.exponential import exponential_features
from kernelformer.feature_maps.moments import check_largest, optimal_proposal, second_moments, symmetric_power
from kernelformer.features import Features, Moments, ProjectedFeatureMap, orthogonal_gaussian

__all__ = ["SoftmaxSampling"]


class SoftmaxSampling(ProjectedFeatureMap):
    """phi_r(x) = sqrt(w_r / M) exp(omega_r·x - ‖x‖²/2), omega_r ~ N(0, Σ), w_r = p_N(0,I)(omega_r) / p_N(0,Σ)(omega_r).

    E[phi(x)·phi(y)] = exp(x·y) whatever Σ: the kernel stays softmax, only its variance depends on Σ. Where
    ``Darkformer`` draws from N(0, Σ) without weights and so changes the kernel, this map keeps it.
    Σ starts at I, which is FAVOR+; ``start_from`` takes Σ* = (I + 2Λ)(I - 2Λ)⁻¹, the proposal of least averaged
    variance for q, k ~ N(0, Λ), Λ of eigenvalues below 1/2. Nothing is learned by gradient.

    Domain and numerics: positive at any magnitude; values in [0, 1]; the weights enter as logarithms.

    Args:
        num_features: M, any number.
        largest: ``start_from`` takes eigenvalues of Λ above it as it, in (0, 0.5); None raises instead.
        generator: draws omega; None is a fresh generator of seed 0. Redraw under the same Σ by ``redraw``.

    Shape:
        [B, H, N, D] -> values [B, H, N, M], log_scale [B, H, N]. Buffers: omega [H, D, M], log_weight
        [H, 1, M], and proposal_root [H, D, D], the symmetric square root of Σ.

    References:
        Farzam et al. 2026, arXiv 2603.04127, theorem 3.2.

    Example:
        >>> import torch
        >>> sampling = SoftmaxSampling(head_dim=4, num_heads=1, num_features=4096)
        >>> mean, square = torch.zeros(1, 4), torch.diag(torch.tensor([0.3, 0.1, 0.1, 0.0]))[None]
        >>> sampling.start_from(Moments(mean, mean, square, square))
        >>> x = torch.tensor([1.0, 0.5, 0.5, 0.0])[None, None, None]
        >>> values, log_scale, _ = sampling.phi(x)
        >>> estimate = values.square().sum() * torch.exp(2 * log_scale.sum())
        >>> bool((estimate / torch.exp(x.square().sum()) - 1).abs() < 0.1)
        True
    """

    is_positive = True
    log_weight: Tensor
    proposal_root: Tensor

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        num_features: int = 64,
        *,
        largest: float | None = 0.4,
        generator: torch.Generator | None = None,
    ) -> None:
        check_largest(largest)
        super().__init__(head_dim, num_heads, num_features, num_projections=num_features, trainable=False)
        self.largest = largest
        self.register_buffer("log_weight", torch.empty(num_heads, 1, num_features))
        self.register_buffer("proposal_root", torch.empty(num_heads, head_dim, head_dim))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        identity = torch.eye(self.head_dim, dtype=torch.float64, device="cpu").expand(self.proposal_root.shape)
        self._draw(identity, generator)

    @torch.no_grad()
    def start_from(self, moments: Moments, generator: torch.Generator | None = None) -> None:
        """Take the mean key as ``key_shift`` and the optimal proposal for these moments, and redraw.

        Raises:
            KernelformerError: ``largest`` is None and an eigenvalue is at least 0.5; moments that are none.
        """
        super().start_from(moments)
        queries, keys = second_moments(moments, self.num_heads, self.head_dim)
        self._draw(symmetric_power(optimal_proposal(queries, keys, self.largest), 0.5), generator)

    @torch.no_grad()
    def redraw(self, generator: torch.Generator | None = None) -> None:
        """Draw omega and its weights again from the proposal that stands."""
        self._draw(self.proposal_root.detach().to("cpu", torch.float64), generator)

    def _draw(self, root: Tensor, generator: torch.Generator | None) -> None:
        drawn = orthogonal_gaussian(self.num_heads, self.head_dim, self.num_features, generator).double()
        omega = root @ drawn
        # omega = root·drawn, hence omega' Σ⁻¹ omega = ‖drawn‖² and log det Σ = 2 log det root.
        log_weight = 0.5 * (drawn.square() - omega.square()).sum(1) + torch.linalg.slogdet(root)[1][:, None]
        self.omega.copy_(omega)
        self.log_weight.copy_(log_weight[:, None])
        self.proposal_root.copy_(root)

    def phi(self, x: Tensor) -> Features:
        exponents = self.project(x) + 0.5 * self.log_weight.to(x.dtype)
        return exponential_features(exponents, -0.5 * x.square().sum(-1))
