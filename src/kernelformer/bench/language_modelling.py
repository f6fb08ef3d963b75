"""Language models from scratch with every kernel in turn: perplexity, and whether its order is the paper's."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from kernelformer.bench.environment import environment
from kernelformer.bench.markdown import markdown_table
from kernelformer.bench.rows import Rows
from kernelformer.feature_maps import find_feature_map, width_for
from kernelformer.hf import convert
from kernelformer.hf.fresh import fresh_weights
from kernelformer.learn.classify import train_classifier
from kernelformer.learn.trainer import Schedule
from kernelformer.tasks.batches import TokenisedTexts
from kernelformer.tasks.documents import messages_by_year, read_language
from kernelformer.tasks.language import likelihood, token_blocks
from kernelformer.tasks.modelling import LanguageBatches, train_vocabulary

__all__ = [
    "ROWS",
    "SCALES",
    "Row",
    "Scale",
    "build_model",
    "kernel_rate",
    "language_markdown",
    "run_study",
    "scale_settings",
]


@dataclass(frozen=True)
class Row:
    """A model: its kernel, and the paper's test perplexities on WikiText-103 (small and big) where it has them.

    options: of the kernel, where others than its defaults, which are for distillation, were better on validation text.
    """

    kernel: str
    small: float | None = None
    big: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


ROWS: Final = (
    Row("softmax", 31.3, 23.8),
    Row("flexformer_n", 31.6, 22.3, {"floor": 0.2}),
    Row("flexformer_s", 32.7, 23.4, {"floor": 0.1}),
    Row("polaformer", 32.9, 24.3),
    Row("hedgehog", 33.2, 24.2),
    Row("cosformer", 34.2, 26.2),
    Row("rfa", 35.3, 28.0),
    Row("elu", 35.6, 29.2),
    Row("darkformer"),
    Row("lfk"),
    Row("favor"),
    Row("constant"),
)
"""Table 2 of the paper, in its order; "elu" is its Linear Transformer."""


@dataclass(frozen=True)
class Scale:
    """The sizes and rates of a study.

    Attributes:
        data: None is the shipped text; else what ``read_language`` reads.
        vocabulary: tokens, trained on the training text.
        length: tokens of a block.
        num_features: M of kernels with a free width; twice the width of a head, as in the paper.
        test_blocks: at most, from the start of the test text; None is all.
    """

    data: str | None
    vocabulary: int
    length: int
    width: int
    feed_forward: int
    num_layers: int
    num_heads: int
    num_features: int
    dropout: float
    steps: int
    batch_size: int
    learning_rate: float
    warmup: float
    max_grad_norm: float
    test_blocks: int | None = None


_WIKITEXT: Final = "Salesforce/wikitext/wikitext-103-raw-v1"

SCALES: Final = {
    "small": Scale(None, 1024, 128, 128, 256, 2, 2, 128, 0.0, 500, 16, 3e-3, 0.1, 1.0, 1000),
    "paper": Scale(_WIKITEXT, 32_000, 512, 512, 2048, 6, 8, 128, 0.1, 100_000, 128, 5e-4, 0.04, 0.1),
    "paper-big": Scale(_WIKITEXT, 32_000, 512, 1024, 4096, 16, 16, 128, 0.2, 100_000, 128, 5e-4, 0.04, 0.1),
}
"""Table 6 of the paper, whose vocabulary of 267,735 words with adaptive inputs transformers does not have."""


class _Blocks(NamedTuple):
    train: TokenisedTexts
    validation: TokenisedTexts
    test: TokenisedTexts


def run_study(
    scale: Scale,
    seeds: int,
    kept: Rows,
    folder: Path,
    *,
    rows: Sequence[Row] = ROWS,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Train every row with every seed, but for the runs that ``kept`` holds already.

    Args:
        folder: for checkpoints, from which an interrupted run goes on.

    Returns:
        {"settings", "seeds", "tokens", "machine", "versions", "runs": [{"row", "seed", "test", "validation"
        (perplexities), "accuracy", "seconds" (of the CPU), "parameters", "curve"}]}.
    """
    texts = messages_by_year() if scale.data is None else read_language(scale.data)
    tokenizer = train_vocabulary(texts.train, scale.vocabulary)
    blocks = _Blocks(*(token_blocks(tokenizer, part, scale.length) for part in texts))
    wanted = {
        f"{row.kernel}, seed {seed}": partial(_run, row, seed, scale, blocks, folder / f"{row.kernel}-{seed}")
        for seed in range(seeds)
        for row in rows
    }
    runs = kept.get_all(wanted, say)
    return {
        "settings": scale_settings(scale, rows),
        "seeds": seeds,
        "tokens": {name: sum(part.lengths) for name, part in blocks._asdict().items()},
        **environment(),
        "runs": list(runs.values()),
    }


def scale_settings(scale: Scale, rows: Sequence[Row] = ROWS) -> dict[str, Any]:
    """All of a scale and its rows, for JSON."""
    return asdict(scale) | {"rows": [asdict(row) for row in rows]}


def build_model(scale: Scale, row: Row, seed: int) -> PreTrainedModel:
    """A fresh decoder of Llama's kind; all kernels of one seed share its other weights."""
    config = LlamaConfig(
        vocab_size=scale.vocabulary,
        hidden_size=scale.width,
        intermediate_size=scale.feed_forward,
        num_hidden_layers=scale.num_layers,
        num_attention_heads=scale.num_heads,
        max_position_embeddings=scale.length,
        tie_word_embeddings=True,
        attention_dropout=scale.dropout,
        use_cache=False,
    )
    with fresh_weights(seed):
        model = LlamaForCausalLM(config)
    if row.kernel == "softmax":
        return model
    return convert(model, row.kernel, width_for(row.kernel, scale.num_features), options=row.options, seed=seed)


def kernel_rate(kernel: str, rate: float) -> float:
    """The peak rate of a kernel's parameters: what its class declares, at most ten times ``rate``, that of the weights.

    Of rates of one and ten times that of the weights, ten was better on validation text for Hedgehog and Flexformer_n.
    """
    return min(find_feature_map(kernel).learning_rate, 10.0 * rate)


def _run(row: Row, seed: int, scale: Scale, blocks: _Blocks, folder: Path) -> dict[str, Any]:
    model = build_model(scale, row, seed)
    schedule = Schedule(
        steps=scale.steps,
        learning_rate=scale.learning_rate,
        kernel_learning_rate=kernel_rate(row.kernel, scale.learning_rate),
        warmup=scale.warmup,
        betas=(0.9, 0.98),
        max_grad_norm=scale.max_grad_norm,
        save_steps=1000,
        seed=seed,
    )
    batches = LanguageBatches(blocks.train, scale.batch_size, steps=scale.steps, seed=seed)
    begin = time.process_time()
    curve = train_classifier(model, batches, schedule, train_kernels=True, folder=folder)
    seconds = time.process_time() - begin
    test, validation = (
        likelihood(model, part if scale.test_blocks is None else part.first(scale.test_blocks), batch_size=16)
        for part in (blocks.test, blocks.validation)
    )
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "row": row.kernel,
        "seed": seed,
        "test": test["perplexity"],
        "validation": validation["perplexity"],
        "accuracy": test["accuracy"],
        "seconds": seconds,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "curve": curve,
    }


def language_markdown(study: dict[str, Any]) -> str:
    """A row a kernel, best first: mean ± standard deviation of the test perplexity, beside the paper's."""
    softmax = statistics.fmean(run["test"] for run in study["runs"] if run["row"] == "softmax")
    header = ["kernel", "test perplexity", "of softmax", "validation", "accuracy", "paper, 41M", "paper, 247M", "CPU s"]
    found = []
    for row in study["settings"]["rows"]:
        runs = [run for run in study["runs"] if run["row"] == row["kernel"]]
        test = [run["test"] for run in runs]
        mean = {name: statistics.fmean(run[name] for run in runs) for name in ("validation", "accuracy", "seconds")}
        paper = ["" if row[size] is None else f"{row[size]:.1f}" for size in ("small", "big")]
        line = [
            row["kernel"],
            f"{statistics.fmean(test):.2f} ± {statistics.stdev(test):.2f}",
            f"{statistics.fmean(test) / softmax - 1:+.1%}",
            f"{mean['validation']:.2f}",
            f"{mean['accuracy']:.1%}",
            *paper,
            f"{mean['seconds']:.0f}",
        ]
        found.append((statistics.fmean(test), line))
    return markdown_table(header, (line for _, line in sorted(found)))
