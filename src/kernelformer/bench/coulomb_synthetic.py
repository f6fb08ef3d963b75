"""The Coulomb paper's synthetic task: learned particles against fixed and sampled features, and what moves the result.

Every figure is of 280 rows to learn from (70 % of the paper's 400) and of 4,000 fresh rows to judge by in the place of
the other 120, which would add 4 points of chance to each accuracy. A seed draws rows, labels and features.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import linear_regression
from typing import Any, NamedTuple, TypedDict

import numpy as np
from sklearn.metrics import accuracy_score, f1_score

from kernelformer.bench.coulomb_synthetic_methods import (
    PAPER_WEIGHTS,
    Build,
    budget_methods,
    noise_methods,
    particles,
    particles_as_printed,
)
from kernelformer.bench.rows import Rows
from kernelformer.learn.classifier import KernelClassifier
from kernelformer.tasks.synthetic import NOISE_LEVELS, Synthetic, draw_synthetic

__all__ = ["BEST", "SCALES", "Cell", "Scale", "Spread", "Study", "measure_synthetic", "slope"]

BEST = "more probable label"
"""Row of what knows the law: no classifier can be better."""

SPREAD_WEIGHTS = (0.0, 0.001, 0.5)
"""λ at which the spread of the learned kernel is looked at."""


@dataclass(frozen=True)
class Scale:
    """Size of the study.

    Attributes:
        noises: σ of the comparison of methods.
        few: σ of λ's ablation and of the feature budget.
        steps: of the dynamics with the paper's settings.
        weights: λ of the ablation at the defaults of ``KernelClassifier``, beside those of the paper.
        budgets: numbers of features.
        runs, clouds: how many runs the spread of the learned kernel is taken over, and of how many particles.
        learn, judge: rows.
    """

    noises: tuple[float, ...]
    few: tuple[float, ...]
    steps: int
    weights: tuple[float, ...] = (0.001, 0.01, 0.1)
    budgets: tuple[int, ...] = (16, 32, 64, 128, 256)
    runs: int = 12
    clouds: tuple[int, ...] = (16, 64, 256)
    learn: int = 280
    judge: int = 4000


_FEW = (NOISE_LEVELS[0], NOISE_LEVELS[4], NOISE_LEVELS[5])

SCALES = {
    "small": Scale(tuple(NOISE_LEVELS[level] for level in (0, 3, 4, 5, 6, 9)), _FEW, steps=200),
    "paper": Scale(NOISE_LEVELS, _FEW, steps=2000),
}
"""Name -> size: "paper" has all its noise levels and steps."""


class Cell(TypedDict):
    """One method in one setting, a value a seed. part: "noise", "weight" or "budget"; value: λ, features, or None."""

    part: str
    method: str
    noise: float
    value: float | None
    accuracy: list[float]
    f1: list[float]
    macro_f1: list[float]


class Spread(TypedDict):
    """Root mean square, over pairs of rows, of the deviation over runs of the learned kernel of N particles."""

    weight: float
    num_particles: int
    spread: float


class Study(TypedDict):
    """All that was measured."""

    scale: str
    seeds: int
    cells: list[Cell]
    spreads: list[Spread]


class _Setting(NamedTuple):
    part: str
    method: str
    noise: float
    value: float | None
    build: Build | None


def measure_synthetic(
    seeds: int, name: str, size: Scale, rows: Rows, say: Callable[[str], None] = lambda _: None
) -> Study:
    """The whole study.

    Args:
        seeds: 0 to seeds - 1 are measured.
        name: of the size, for the record.
        size: one of ``SCALES``, or smaller.
        rows: where finished parts are kept.
        say: told of each that is measured.
    """
    cells = {
        f"{setting.part}: {setting.method}, {setting.value}, noise {setting.noise:.2g}": partial(
            _cell, setting, size, seeds
        )
        for setting in _settings(size)
    }
    spreads = {
        f"spread: {weight}, {count} particles": partial(_spread, weight, count, size)
        for weight, count in itertools.product(SPREAD_WEIGHTS, size.clouds)
    }
    found = rows.get_all({**cells, **spreads}, say)
    return {
        "scale": name,
        "seeds": seeds,
        "cells": [found[key] for key in cells],
        "spreads": [found[key] for key in spreads],
    }


def _settings(size: Scale) -> Iterator[_Setting]:
    for noise in size.noises:
        yield _Setting("noise", BEST, noise, None, None)
        for method, build in noise_methods(size.steps).items():
            yield _Setting("noise", method, noise, None, build)
    repulsions: tuple[tuple[str, float | None], ...] = (("log", 0.0), ("Coulomb", None))
    for noise in size.few:
        for name, exponent in repulsions:
            for weight in PAPER_WEIGHTS:
                build = particles_as_printed(size.steps, weight, exponent)
                yield _Setting("weight", f"printed settings, {name}", noise, weight, build)
            for weight in sorted({*PAPER_WEIGHTS, *size.weights}):
                yield _Setting("weight", f"defaults, {name}", noise, weight, particles(weight, exponent))
    for noise in size.few:
        for budget in size.budgets:
            for method, build in budget_methods(budget).items():
                yield _Setting("budget", method, noise, budget, build)


def _cell(setting: _Setting, size: Scale, seeds: int) -> Cell:
    found: list[tuple[float, float, float]] = []
    for seed in range(seeds):
        drawn = draw_synthetic(size.learn + size.judge, setting.noise, seed)
        wanted, said = drawn.labels[size.learn :], _said(setting.build, drawn, size.learn, seed)
        scores = accuracy_score(wanted, said), f1_score(wanted, said), f1_score(wanted, said, average="macro")
        found.append(tuple(round(float(score), 4) for score in scores))  # type: ignore[arg-type]
    accuracy, f1, macro = (list(values) for values in zip(*found, strict=True))
    return {
        "part": setting.part,
        "method": setting.method,
        "noise": setting.noise,
        "value": setting.value,
        "accuracy": accuracy,
        "f1": f1,
        "macro_f1": macro,
    }


def _said(build: Build | None, drawn: Synthetic, learn: int, seed: int) -> Any:
    if build is None:
        return drawn.best[learn:]
    return build(seed).fit(drawn.inputs[:learn], drawn.labels[:learn]).predict(drawn.inputs[learn:])


def _spread(weight: float, count: int, size: Scale) -> Spread:
    """On the rows of seed 0 and the kernel of 50 more, at the defaults of ``KernelClassifier``."""
    drawn = draw_synthetic(size.learn + 50, size.noises[0], 0)
    kernels = []
    for seed in range(size.runs):
        model = KernelClassifier(count, repulsion_weight=weight, random_state=seed)
        features = model.fit(drawn.inputs[: size.learn], drawn.labels[: size.learn]).features(
            drawn.inputs[size.learn :]
        )
        kernels.append(features @ features.T)
    spread = np.sqrt(np.var(kernels, axis=0, ddof=1).mean())
    return {"weight": weight, "num_particles": count, "spread": round(float(spread), 5)}


def slope(spreads: Sequence[Spread]) -> float:
    """Of log spread against log N, by least squares."""
    logs = [(math.log(row["num_particles"]), math.log(row["spread"])) for row in spreads]
    return linear_regression(*zip(*logs, strict=True)).slope
