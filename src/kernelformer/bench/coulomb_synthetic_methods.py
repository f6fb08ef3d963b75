"""Classifiers of the synthetic study: an entry each, made from a seed.

Wherever features are fixed, drawn or learned, the linear model on them is logistic regression with C = 1 (or chosen by
cross-validation), and there are 200 of them: 200 cosines with phases, or cosine and sine of 100 frequencies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.dummy import DummyClassifier
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from kernelformer.learn.classifier import KernelClassifier
from kernelformer.learn.importance import ImportanceFeatures

__all__ = ["PAPER_WEIGHTS", "budget_methods", "noise_methods", "particles", "particles_as_printed"]

Build = Callable[[int], Any]

PAPER_WEIGHTS = (0.0, 0.2, 0.5, 0.8, 1.0, 1.5)
"""λ of the paper's ablation."""

_GAMMA = 0.5
_NUM_FEATURES = 200


def particles(weight: float = 1e-3, exponent: float | None = 0.0) -> Build:
    """Learned by the defaults of ``KernelClassifier``, which keep all particles."""

    def build(seed: int) -> KernelClassifier:
        return KernelClassifier(_NUM_FEATURES // 2, repulsion_weight=weight, exponent=exponent, random_state=seed)

    return build


def particles_as_printed(steps: int, weight: float = 0.5, exponent: float | None = 0.0) -> Build:
    """Learned by the settings that the paper prints: N = 300, β = 100, η = 30, ‖ω‖ <= 5, drift clipped at 1."""

    def build(seed: int) -> KernelClassifier:
        return KernelClassifier(
            300,
            _NUM_FEATURES // 2,
            gamma=_GAMMA,
            step_size=30.0,
            inverse_temperature=100.0,
            exponent=exponent,
            repulsion_weight=weight,
            max_norm=5.0,
            max_drift=1.0,
            max_steps=steps,
            random_state=seed,
        )

    return build


def noise_methods(steps: int) -> dict[str, Build]:
    """Methods compared at each noise level; ``steps`` are those of the paper's settings."""
    return {
        "larger class": lambda _: DummyClassifier(),
        "logistic": lambda _: LogisticRegression(),
        "svm_rbf": lambda _: SVC(gamma=_GAMMA),
        "random features": lambda seed: _linear(RBFSampler(gamma=_GAMMA, n_components=_NUM_FEATURES), seed),
        "importance sampled": lambda seed: _linear(ImportanceFeatures(_GAMMA, _NUM_FEATURES), seed),
        "particles, printed settings": particles_as_printed(steps),
        "particles, printed settings, λ = 0": particles_as_printed(steps, 0.0),
        "particles": particles(),
        "svm_rbf, tuned": _tuned_svm,
        "random features, tuned": _tuned_random,
        "importance sampled, tuned": _tuned_importance,
        "particles, tuned": _tuned_particles,
    }


def budget_methods(num_features: int) -> dict[str, Build]:
    """Methods compared at one number of features, half cosines and half sines but for the sampled ones."""
    half = num_features // 2
    return {
        "fixed": lambda seed: KernelClassifier(half, max_steps=0, random_state=seed),
        "importance sampled": lambda seed: _linear(ImportanceFeatures(_GAMMA, num_features), seed),
        "particles": lambda seed: KernelClassifier(half, random_state=seed),
        "particles, kept of 128": lambda seed: KernelClassifier(128, half, random_state=seed),
    }


def _linear(features: Any, seed: int) -> Any:
    return make_pipeline(features.set_params(random_state=seed), LogisticRegression())


def _search(model: Any, grid: dict[str, list[Any]], seed: int) -> Any:
    """Chosen by accuracy over 5 folds of the rows to learn from, then fitted on all of them."""
    return GridSearchCV(model, grid, cv=StratifiedKFold(5, shuffle=True, random_state=seed))


def _tuned_svm(seed: int) -> Any:
    return _search(SVC(), {"gamma": [0.03, 0.1, 0.25, 0.5], "C": [0.3, 1.0, 3.0, 10.0]}, seed)


def _tuned_random(seed: int) -> Any:
    grid = {"rbfsampler__gamma": [0.03, 0.1, 0.25, 0.5], "logisticregression__C": [0.3, 1.0, 3.0, 10.0]}
    return _search(_linear(RBFSampler(n_components=_NUM_FEATURES), seed), grid, seed)


def _tuned_importance(seed: int) -> Any:
    features = ImportanceFeatures(n_components=_NUM_FEATURES, n_candidates=3000)
    grid = {"importancefeatures__gamma": [0.1, 0.25, 0.5], "importancefeatures__radius": [0.002, 0.005, 0.02]}
    return _search(_linear(features, seed), grid, seed)


def _tuned_particles(seed: int) -> Any:
    grid: dict[str, list[Any]] = {"gamma": [0.1, 0.25, 0.5], "max_steps": [0, 20, 100]}
    return _search(KernelClassifier(_NUM_FEATURES // 2, random_state=seed), grid, seed)
