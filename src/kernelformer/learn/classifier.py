"""A classifier of scikit-learn whose kernel is learned as particles. Needs scikit-learn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from kernelformer.errors import KernelformerError
from kernelformer.learn.energy import FourierAlignment, Riesz, center, class_targets
from kernelformer.learn.langevin import Ball, Dynamics, Langevin, resample
from kernelformer.learn.rows import labelled_rows

__all__ = ["KernelClassifier"]


class KernelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression on cos(ω·x) and sin(ω·x), the frequencies ω learned as particles that align with the labels.

    The kernel is 1/M Σ_k cos(ω_k·(x - x')). Frequencies start at N(0, 2 gamma), where it estimates
    exp(-gamma ‖x - x'‖²), and move by projected Langevin dynamics: centred alignment pulls, repulsion keeps them apart.
    Then they are frozen.
    Columns of X should have like scales: put a ``StandardScaler`` before it.

    Lengths of ω (``max_norm``, ``step_size``, ``max_drift``) are in units of √(2 gamma), so that multiplying X by a
    number changes nothing.

    Args:
        num_particles: N, how many are moved.
        num_features: M of them, drawn by their energy, are kept (each gives a cosine and a sine); None keeps all.
        gamma: a positive number, or "scale" for 1 / (number of columns · variance of X).
        step_size: η of ``Dynamics``.
        inverse_temperature: β.
        exponent: s of the repulsion; None is Coulomb's, number of columns - 2.
        repulsion_weight: λ; 0 leaves repulsion out.
        softening: a length that bounds the repulsion.
        max_norm: radius of the ball that holds the particles; None is twice the root of the number of columns.
        max_drift: what a particle's drift is clipped to.
        max_steps: steps of the dynamics; 0 leaves the frequencies as they start, random Fourier features.
        tolerance: stop when a step moves the cloud of particles by less; 0 goes on to ``max_steps``.
        batch_size: rows that a step looks at; None is all.
        C: inverse strength of the regularisation of the logistic regression.
        random_state: int, ``RandomState``, or None for a draw that differs from call to call.

    Attributes:
        classes_: labels, in the order of the columns of ``predict_proba``.
        particles_: frequencies, float64 [M, columns of X].
        linear_: the fitted ``LogisticRegression``.
        n_steps_: steps made.

    References:
        Badiei Khuzani et al. 2026, arXiv 2607.23869, algorithms 1 and 2.

    Example:
        >>> import numpy as np
        >>> angle = np.linspace(0, 4 * np.pi, 200)
        >>> X, y = np.c_[np.cos(angle), np.sin(angle)], np.arange(200) // 10 % 2
        >>> KernelClassifier(num_particles=32, max_steps=50).fit(X, y).predict_proba(X).shape
        (200, 2)
    """

    def __init__(
        self,
        num_particles: int = 256,
        num_features: int | None = None,
        *,
        gamma: float | str = "scale",
        step_size: float = 10.0,
        inverse_temperature: float = 1e4,
        exponent: float | None = 0.0,
        repulsion_weight: float = 1e-3,
        softening: float = 0.0,
        max_norm: float | None = None,
        max_drift: float = 0.1,
        max_steps: int = 200,
        tolerance: float = 0.0,
        batch_size: int | None = None,
        C: float = 1.0,  # noqa: N803  (the name it has everywhere in scikit-learn)
        random_state: Any = 0,
    ) -> None:
        self.num_particles = num_particles
        self.num_features = num_features
        self.gamma = gamma
        self.step_size = step_size
        self.inverse_temperature = inverse_temperature
        self.exponent = exponent
        self.repulsion_weight = repulsion_weight
        self.softening = softening
        self.max_norm = max_norm
        self.max_drift = max_drift
        self.max_steps = max_steps
        self.tolerance = tolerance
        self.batch_size = batch_size
        self.C = C
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> KernelClassifier:  # noqa: N803
        """Learn the frequencies, then the linear model on them.

        Args:
            X: [rows, columns], finite numbers, dense.
            y: a label a row, of at least two classes.

        Raises:
            DataError: one class only.
            KernelformerError: an argument out of its range.
        """
        X, self.classes_, indices = labelled_rows(self, X, y)  # noqa: N806
        if self.num_particles < 1 or not 1 <= (self.num_features or 1) <= self.num_particles:
            raise KernelformerError(
                "num_particles must be at least 1 and num_features lie between 1 and num_particles, got "
                f"{self.num_particles} and {self.num_features}"
            )
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        unit = math.sqrt(2.0 * self._gamma(X))
        self.particles_ = unit * self._learn(torch.from_numpy(X * unit), torch.from_numpy(indices), seed).numpy()
        self.linear_ = LogisticRegression(C=self.C, max_iter=1000).fit(self._features(X), y)
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """The most probable label of each row."""
        found = self.features(X)
        return self.linear_.predict(found)

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Probabilities, [rows, classes]."""
        found = self.features(X)
        return self.linear_.predict_proba(found)

    def decision_function(self, X: Any) -> Any:  # noqa: N803
        """Logits, [rows] for two classes, [rows, classes] for more."""
        found = self.features(X)
        return self.linear_.decision_function(found)

    def features(self, X: Any) -> Any:  # noqa: N803
        """The features whose inner products are the learned kernel, [rows, 2 M]."""
        check_is_fitted(self)
        return self._features(validate_data(self, X, dtype=np.float64, reset=False))

    def _gamma(self, X: Any) -> float:  # noqa: N803
        if isinstance(self.gamma, str):
            if self.gamma != "scale":
                raise KernelformerError(f'gamma is a positive number or "scale", got {self.gamma!r}')
            variance = float(X.var())
            return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
        if not self.gamma > 0:
            raise KernelformerError(f'gamma is a positive number or "scale", got {self.gamma}')
        return float(self.gamma)

    def _learn(self, inputs: Tensor, labels: Tensor, seed: int) -> Tensor:
        """The frequencies of ``inputs``, which come in units where they start at N(0, 1)."""
        generator = torch.Generator().manual_seed(seed)
        width = inputs.shape[1]
        targets = center(class_targets(labels, len(self.classes_)).double())
        alignment = FourierAlignment(inputs, targets, self.batch_size)
        repulsion = Riesz(width - 2.0 if self.exponent is None else self.exponent, self.softening)
        dynamics = Dynamics(
            step_size=self.step_size,
            inverse_temperature=self.inverse_temperature,
            repulsion=repulsion,
            repulsion_weight=self.repulsion_weight,
            domain=Ball(2.0 * math.sqrt(width) if self.max_norm is None else self.max_norm),
            max_drift=self.max_drift,
        )
        start = torch.randn(self.num_particles, width, generator=generator, dtype=torch.float64)
        langevin = Langevin(start, alignment.drift, dynamics, generator)
        self.n_steps_ = langevin.run(self.max_steps, self.tolerance)
        particles = langevin.particles
        if self.num_features is None or self.num_features == self.num_particles:
            return particles
        energies = alignment.potential(particles) + self.repulsion_weight * repulsion.potential(particles)
        beta = self.inverse_temperature
        return particles[resample(energies, beta, self.num_features, generator, replacement=False)]

    def _features(self, X: Any) -> Any:  # noqa: N803
        angles = X @ self.particles_.T
        return np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / math.sqrt(len(self.particles_))
