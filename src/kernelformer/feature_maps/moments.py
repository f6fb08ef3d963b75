"""From moments of the data to proposals for random features. Not a map itself.

Every matrix is float64 on the CPU, [H, D, D].
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernelformer.errors import KernelformerError, ShapeError
from kernelformer.features import Moments

__all__ = ["check_largest", "optimal_curvature", "optimal_proposal", "second_moments", "symmetric_power"]


def second_moments(moments: Moments, num_heads: int, head_dim: int) -> tuple[Tensor, Tensor]:
    """E[q qᵀ] and the covariance of keys, which is their second moment after ``key_shift``.

    Raises:
        ShapeError: moments of another shape.
        KernelformerError: not finite, not symmetric, or with a negative eigenvalue.
    """
    queries = _checked(moments.query_square, num_heads, head_dim)
    keys = _checked(moments.key_square, num_heads, head_dim)
    mean = moments.key_mean.detach().to("cpu", torch.float64)
    if mean.shape != (num_heads, head_dim):
        raise ShapeError(f"the mean of the keys must be {[num_heads, head_dim]}, got {list(mean.shape)}")
    return queries, keys - mean[..., :, None] * mean[..., None, :]


def _checked(squares: Tensor, num_heads: int, head_dim: int) -> Tensor:
    shape = (num_heads, head_dim, head_dim)
    if squares.shape != shape:
        raise ShapeError(f"second moments must be {list(shape)}, got {list(squares.shape)}")
    given = squares.detach().to("cpu", torch.float64)
    if not bool(given.isfinite().all()):
        raise KernelformerError("second moments must be finite: drop the inputs that are NaN or infinite")
    symmetric = 0.5 * (given + given.mT)
    rounding = torch.finfo(torch.float32).eps * head_dim * given.abs().amax()
    if bool(((given - symmetric).abs() > rounding).any()) or bool((_eigenvalues(symmetric) < -rounding).any()):
        raise KernelformerError("second moments must be symmetric, without negative eigenvalues: give E[x xᵀ]")
    return symmetric


def _eigenvalues(matrix: Tensor) -> Tensor:
    values: Tensor = torch.linalg.eigvalsh(matrix)
    return values


def symmetric_power(matrix: Tensor, power: float) -> Tensor:
    """matrix ** power of symmetric matrices without negative eigenvalues.

    Raises:
        KernelformerError: a negative power of a matrix that is not invertible.
    """
    values, vectors = torch.linalg.eigh(matrix)
    values = values.clamp_min(0.0)
    rounding = torch.finfo(torch.float32).eps * values[..., -1]
    if power < 0 and bool((values[..., 0] <= rounding).any()):
        raise KernelformerError(
            "these moments must be invertible, but a direction carries no variance: gather more tokens than "
            "head_dim, or add a small multiple of the identity"
        )
    return _from_axes(values.pow(power), vectors)


def optimal_proposal(queries: Tensor, keys: Tensor, largest: float | None) -> Tensor:
    """Σ*, the covariance of the proposal of least averaged variance; (I + 2Λ)(I - 2Λ)⁻¹ for equal moments Λ.

    For q ~ N(0, Λq) and k ~ N(0, Λk) independent, the second moment of exp(ω·q - ‖q‖²/2) exp(ω·k - ‖k‖²/2)
    under importance sampling is least for ω ~ N(0, Σ*), Σ*⁻¹ = I - 2 G, G = Λq (I + 2Λq)⁻¹ + Λk (I + 2Λk)⁻¹. No
    Gaussian proposal has a finite one once Λq = Λk has an eigenvalue of 1/2.

    Args:
        queries, keys: Λq and Λk.
        largest: eigenvalues of Λ (of the Λ that gives this G) above it are taken as it; None raises instead.

    Raises:
        KernelformerError: an eigenvalue is at least 1/2 and ``largest`` is None.

    References:
        Farzam et al. 2026, arXiv 2603.04127, theorem 3.2, for one Λ.
    """
    damped = _damped(queries) + _damped(keys)
    values, vectors = torch.linalg.eigh(damped)
    values = values.clamp_min(0.0)
    if largest is not None:
        values = values.clamp(max=2.0 * largest / (1.0 + 2.0 * largest))
    if bool((values >= 0.5).any()):
        raise KernelformerError(
            "the optimal proposal needs second moments with eigenvalues below 0.5: give largest=0.4, say, to take all "
            "above it as 0.4, or use dense_exponential, which holds for any"
        )
    return _from_axes((1.0 - 2.0 * values).reciprocal(), vectors)


def check_largest(largest: float | None) -> None:
    if largest is not None and not 0 < largest < 0.5:
        raise KernelformerError(f"largest must be None or lie in (0, 0.5), got {largest}")


def optimal_curvature(spread: Tensor) -> Tensor:
    """The a <= 0 that minimises the mean logarithm of the variance of exp(a ω² + sqrt(1 - 4a) ω z - …).

    With z = q + k along one axis and spread s = E[z²], the second moment of one pair is
    (1 - 4a)(1 - 8a)^(-1/2) exp(2 z² (1 - 4a) / (1 - 8a)) up to factors free of a. The mean of its logarithm
    is stationary where 16 a² + (4 s - 2) a - s = 0, whose root below 0 this is; s = 0 gives a = 0, FAVOR+.

    References:
        Likhosherstov et al. 2022, arXiv 2205.15317 (one a for all axes, s the mean over axes);
        Likhosherstov et al. 2023, arXiv 2302.00787 (one a an axis).
    """
    root: Tensor = ((1.0 + 2.0 * spread).square() + 8.0 * spread).sqrt()
    return (1.0 - 2.0 * spread - root) / 16.0


def _damped(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    values = values.clamp_min(0.0)
    return _from_axes(values / (1.0 + 2.0 * values), vectors)


def _from_axes(values: Tensor, vectors: Tensor) -> Tensor:
    product: Tensor = (vectors * values[..., None, :]) @ vectors.mT
    return product
