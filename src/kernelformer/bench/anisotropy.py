"""How random features fare as queries and keys become anisotropic, and what knowing their covariance is worth.

Queries and keys are N(0, Λ), head_dim 32; Λ has eigenvalues in geometric progression, ``condition`` from the largest to
the smallest, along random axes, and the trace E‖x‖² = ``squared_norm``. A pretrained encoder's is about 6.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor

from kernelformer.attention import KernelAttention
from kernelformer.bench.drawing import standalone
from kernelformer.bench.markdown import markdown_table
from kernelformer.bench.plots import plot_conditions
from kernelformer.bench.rows import Rows
from kernelformer.feature_maps import (
    Constant,
    Darkformer,
    DenseExponential,
    Favor,
    Oprf,
    SoftmaxSampling,
)
from kernelformer.features import FeatureMap, Moments

__all__ = [
    "CONDITIONS",
    "SQUARED_NORMS",
    "WIDTHS",
    "AnisotropyRow",
    "anisotropy_markdown",
    "anisotropy_plots",
    "measure_anisotropy",
    "second_moments",
]

HEAD_DIM = 32
SQUARED_NORMS = (1.0, 2.0, 6.0)
CONDITIONS = (1, 16, 256, 4096)
WIDTHS = (64, 256)

_HEADS = 8
_LENGTH = 256


class AnisotropyRow(TypedDict):
    """Relative error ‖out - softmax‖ / ‖softmax‖ of attention outputs: mean over draws, and its standard error."""

    kernel: str
    squared_norm: float
    condition: int
    num_features: int
    largest_eigenvalue: float
    error: float
    standard_error: float


class _Entry(NamedTuple):
    name: str
    build: Callable[[int, torch.Generator], FeatureMap]


def _entries() -> list[_Entry]:
    def of(kind: Any, **options: Any) -> Callable[[int, torch.Generator], FeatureMap]:
        def build(width: int, generator: torch.Generator) -> FeatureMap:
            made: FeatureMap = kind(HEAD_DIM, _HEADS, width, generator=generator, **options)
            return made

        return build

    return [
        _Entry("favor, independent", of(Favor, orthogonal=False)),
        _Entry("favor, orthogonal", of(Favor)),
        _Entry("oprf", of(Oprf)),
        _Entry("dense_exponential", of(DenseExponential)),
        _Entry("softmax_sampling, optimal", of(SoftmaxSampling)),
        _Entry("darkformer, optimal", of(Darkformer, start="optimal")),
        _Entry("darkformer, whitened", of(Darkformer, start="whitened")),
        _Entry("constant (mean of values)", lambda _, generator: Constant(HEAD_DIM, _HEADS, generator=generator)),
    ]


@torch.no_grad()
def measure_anisotropy(
    draws: int,
    kept: Rows,
    squared_norms: Sequence[float] = SQUARED_NORMS,
    conditions: Sequence[int] = CONDITIONS,
    widths: Sequence[int] = WIDTHS,
    say: Callable[[str], None] = lambda _: None,
) -> list[AnisotropyRow]:
    """Errors against exact softmax attention, for every kernel, condition number and width.

    Args:
        draws: of data and features together; each counts 8 heads.
        kept: what was measured before an interruption.
    """
    wanted = {
        f"{entry.name}, E‖x‖² = {squared_norm:g}, condition number {condition}, {width} features": partial(
            _row, entry, squared_norm, condition, width, draws
        )
        for squared_norm, condition, width in itertools.product(squared_norms, conditions, widths)
        for entry in _entries()
    }
    return list(kept.get_all(wanted, say).values())


def _row(entry: _Entry, squared_norm: float, condition: int, width: int, draws: int) -> AnisotropyRow:
    eigenvalues = _spectrum(squared_norm, condition)
    errors = torch.stack([_error(entry, width, eigenvalues, seed) for seed in range(draws)]).flatten()
    return {
        "kernel": entry.name,
        "squared_norm": squared_norm,
        "condition": condition,
        "num_features": width,
        "largest_eigenvalue": eigenvalues[0].item(),
        "error": errors.mean().item(),
        "standard_error": (errors.std() / math.sqrt(len(errors))).item(),
    }


def second_moments(eigenvalue: float) -> tuple[float, float]:
    """Mean over q, k ~ N(0, λ) of the second moment of one feature's estimate of exp(q·k), along one axis.

    Returns:
        That of isotropic draws, ((1 + 2λ)(1 - 6λ))^(-1/2), infinite from λ = 1/6; and that of the optimal proposal
        N(0, (1 + 2λ) / (1 - 2λ)) with its weights, 1 / (1 - 2λ), infinite from λ = 1/2.
    """
    isotropic = math.inf if eigenvalue >= 1 / 6 else ((1 + 2 * eigenvalue) * (1 - 6 * eigenvalue)) ** -0.5
    return isotropic, math.inf if eigenvalue >= 1 / 2 else 1 / (1 - 2 * eigenvalue)


def anisotropy_markdown(rows: Sequence[AnisotropyRow], width: int) -> str:
    """A Markdown table at one width: a row a kernel, a column a norm and condition number."""
    cases = list(dict.fromkeys((row["squared_norm"], row["condition"], row["largest_eigenvalue"]) for row in rows))
    heads = [f"{norm:g}; {condition}; {largest:.2f}" for norm, condition, largest in cases]
    lines = []
    for name in dict.fromkeys(row["kernel"] for row in rows):
        cells = [
            f"{row['error']:.2f} ± {row['standard_error']:.2f}"
            for row in rows
            if row["kernel"] == name and row["num_features"] == width
        ]
        lines.append([name, *cells])
    return markdown_table(["E‖x‖²; condition; λ max", *heads], lines)


def anisotropy_plots(rows: Sequence[AnisotropyRow]) -> dict[str, str]:
    """An SVG for every norm, at the largest width: error against condition number, a line a kernel."""
    width = max(row["num_features"] for row in rows)
    plots = {}
    for norm in dict.fromkeys(row["squared_norm"] for row in rows):
        chosen = [row for row in rows if row["squared_norm"] == norm and row["num_features"] == width]
        names = dict.fromkeys(row["kernel"] for row in chosen)
        lines = [
            (name, [(float(row["condition"]), row["error"]) for row in chosen if row["kernel"] == name])
            for name in names
        ]
        plots[f"norm{norm:g}"] = standalone(
            plot_conditions(lines, f"relative error, {width} features, E‖x‖² = {norm:g}")
        )
    return plots


def _spectrum(squared_norm: float, condition: int) -> Tensor:
    eigenvalues = torch.logspace(0, -math.log10(condition), HEAD_DIM, dtype=torch.float64)
    return eigenvalues * (squared_norm / eigenvalues.sum())


def _error(entry: _Entry, width: int, eigenvalues: Tensor, seed: int) -> Tensor:
    """[H]: the relative error of each head, on data and features of one seed."""
    generator = torch.Generator().manual_seed(seed)
    axes = torch.linalg.qr(torch.randn(_HEADS, HEAD_DIM, HEAD_DIM, generator=generator, dtype=torch.float64)).Q
    root = axes * eigenvalues.sqrt()
    drawn = torch.randn(3, 1, _HEADS, _LENGTH, HEAD_DIM, generator=generator, dtype=torch.float64)
    q, k = ((x @ root.mT).float() for x in drawn[:2])
    v = drawn[2].float()
    feature_map = entry.build(width, generator)
    covariance = (root @ root.mT).float()
    mean = torch.zeros(_HEADS, HEAD_DIM)
    feature_map.start_from(Moments(mean, mean, covariance, covariance))
    # The data are of scaled queries and keys, hence a scale of one.
    softmax = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)
    out = KernelAttention(feature_map)(q, k, v, scale=1.0)
    squares: Tensor = (out - softmax).square().sum((0, 2, 3)) / softmax.square().sum((0, 2, 3))
    return squares.sqrt()
