"""What a conversion is judged by on held-out texts: embeddings for an encoder, likelihood for a decoder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from kernelformer.bench.record import Evaluation, LanguageEvaluation
from kernelformer.tasks.batches import TokenisedTexts
from kernelformer.tasks.embedding import compare_embeddings, embed, mean_cosine
from kernelformer.tasks.language import Likelihood, Recall, likelihood, recall
from kernelformer.tasks.probing import compare_probes, probe
from kernelformer.tasks.text import Corpus

__all__ = ["EmbeddingYardstick", "LikelihoodYardstick", "Yardstick"]

_PROBE_TEXTS = 4000
"""Training texts that a linear probe is fitted on; more change its accuracy by less than its interval."""

_STAGE_BLOCKS = 32
"""Blocks whose perplexity is told after each stage; the final evaluation takes ``_BLOCKS``."""

_BLOCKS = 256


class Yardstick(Protocol):
    """Looks at the teacher once, then at students, one run's after the other."""

    figure: str
    """What :meth:`stage` returns, in words."""

    def look_at_teacher(self) -> None:
        """Whatever of the teacher the rest needs, unless it is there."""

    def stage(self, student: PreTrainedModel) -> float:
        """One figure for a student after a stage."""

    def look_at_student(self, student: PreTrainedModel) -> None:
        """What the final student makes of the held-out texts, and of nothing else."""

    def evaluate(
        self, student: PreTrainedModel, by_stage: dict[str, float]
    ) -> tuple[Evaluation | None, LanguageEvaluation | None]:
        """All figures for the final student, which was looked at before."""


@dataclass
class EmbeddingYardstick:
    """Cosine with the teacher's embeddings, common neighbours, and a linear probe where there are labels."""

    teacher: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    train: Corpus
    test: Corpus
    max_length: int
    seed: int
    figure: str = "cosine with the teacher's embeddings"

    @cached_property
    def wanted(self) -> Tensor:
        """The teacher's embeddings of the held-out texts."""
        return self._embed(self.teacher, self.test)

    def look_at_teacher(self) -> None:
        self.wanted  # noqa: B018  (computed at its first use)

    def stage(self, student: PreTrainedModel) -> float:
        return mean_cosine(self.wanted, self._embed(student, self.test))

    def look_at_student(self, student: PreTrainedModel) -> None:
        self.found = self._embed(student, self.test)

    def evaluate(self, student: PreTrainedModel, by_stage: dict[str, float]) -> tuple[Evaluation, None]:
        difference, probed = None, None
        if self.train.labels is not None and self.test.labels is not None:
            known = self.train.sample(_PROBE_TEXTS, seed=self.seed)
            probed = len(known)
            probes = [
                probe(self._embed(model, known), known.labels or (), test, self.test.labels)
                for model, test in ((self.teacher, self.wanted), (student, self.found))
            ]
            difference = compare_probes(*probes, seed=self.seed)
        return {
            "agreement": compare_embeddings(self.wanted, self.found, seed=self.seed),
            "cosine_by_stage": by_stage,
            "probe": difference,
            "probe_train_texts": probed,
        }, None

    def _embed(self, model: PreTrainedModel, corpus: Corpus) -> Tensor:
        return embed(model, self.tokenizer, corpus.texts, 64, self.max_length)


@dataclass
class LikelihoodYardstick:
    """Perplexity and next-token accuracy, by position, and recall at growing distance."""

    teacher: PreTrainedModel
    blocks: TokenisedTexts
    seed: int
    figure: str = "perplexity on held-out text"

    @cached_property
    def wanted(self) -> Likelihood:
        """The teacher's likelihood of the held-out blocks."""
        return self._likelihood(self.teacher)

    @cached_property
    def recalled(self) -> Recall:
        """The teacher's recall."""
        return self._recall(self.teacher)

    def look_at_teacher(self) -> None:
        self.wanted, self.recalled  # noqa: B018  (computed at their first use)

    def stage(self, student: PreTrainedModel) -> float:
        return likelihood(student, self.blocks.first(_STAGE_BLOCKS))["perplexity"]

    def look_at_student(self, student: PreTrainedModel) -> None:
        self.found = self._likelihood(student)

    def evaluate(self, student: PreTrainedModel, by_stage: dict[str, float]) -> tuple[None, LanguageEvaluation]:
        return None, {
            "teacher": self.wanted,
            "student": self.found,
            "perplexity_by_stage": by_stage,
            "teacher_recall": self.recalled,
            "student_recall": self._recall(student),
        }

    def _likelihood(self, model: PreTrainedModel) -> Likelihood:
        return likelihood(model, self.blocks.first(_BLOCKS), seed=self.seed)

    def _recall(self, model: PreTrainedModel) -> Recall:
        distances = [d for d in (32, 64, 128, 256, 512, 1024) if d <= 2 * self.blocks.max_length]
        return recall(model, self.blocks.first(_BLOCKS), distances, seed=self.seed)
