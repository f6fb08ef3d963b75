"""The claims of papers that ``kernelformer reproduce`` measures: one entry each in ``CLAIMS``.

To add one: a function of a ``Run`` that imports its study from ``bench`` inside, prints Markdown tables and writes
files that begin with ``run.name``; an entry in ``CLAIMS``; a region in docs/papers.md and its table in
scripts/tables.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CLAIMS", "Claim", "Run"]


@dataclass(frozen=True)
class Run:
    """What is asked of a claim's study.

    Attributes:
        name: of the claim; its files are ``folder / f"{name}.json"`` and ``folder / f"{name}-PLOT.svg"``.
        folder: exists.
        seeds: repetitions, at least 2.
        scale: one of the claim's.
        say: prints a line of progress to stderr.
    """

    name: str
    folder: Path
    seeds: int
    scale: str
    say: Callable[[str], None]

    def write_plots(self, plots: dict[str, str]) -> None:
        """SVG texts, by the name each has after that of the claim."""
        for plot, text in plots.items():
            (self.folder / f"{self.name}-{plot}.svg").write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Claim:
    """A claim, and the study that measures it.

    Attributes:
        summary: the paper, and what it says.
        seeds: repetitions unless told otherwise.
        measure: runs the study.
        scales: names of its sizes, the default first.
    """

    summary: str
    seeds: int
    measure: Callable[[Run], None]
    scales: tuple[str, ...] = ("full",)


def _anisotropy(run: Run) -> None:
    from kernelformer.bench.anisotropy import WIDTHS, anisotropy_markdown, anisotropy_plots, measure_anisotropy
    from kernelformer.tasks.files import write_json

    rows = measure_anisotropy(run.seeds, say=run.say)
    write_json(run.folder / "anisotropy.json", rows)
    run.write_plots(anisotropy_plots(rows))
    for width in WIDTHS:
        print(f"\n{width} features\n\n{anisotropy_markdown(rows, width)}")


def _coulomb_synthetic(run: Run) -> None:
    from dataclasses import asdict

    from kernelformer.bench.coulomb_report import synthetic_markdown, synthetic_plots
    from kernelformer.bench.coulomb_synthetic import SCALES, measure_synthetic
    from kernelformer.bench.rows import Rows
    from kernelformer.tasks.files import write_json

    size = SCALES[run.scale]
    rows = Rows(run.folder / f"{run.name}.rows.jsonl", {"seeds": run.seeds, **asdict(size)})
    study = measure_synthetic(run.seeds, run.scale, size, rows, run.say)
    write_json(run.folder / f"{run.name}.json", study)
    run.write_plots(synthetic_plots(study))
    rows.finish()
    print(synthetic_markdown(study))


def _coulomb_text(run: Run) -> None:
    import transformers

    from kernelformer.bench.coulomb_tables import metrics_markdown, pairs_markdown, summarise
    from kernelformer.bench.coulomb_text import SCALES, run_study, scale_settings
    from kernelformer.bench.rows import Rows
    from kernelformer.tasks.files import write_json

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    name, scale = f"{run.name}-{run.scale}", SCALES[run.scale]
    kept = Rows(run.folder / f"{name}.rows.jsonl", scale_settings(scale))
    summary = summarise(run_study(scale, run.seeds, kept, say=run.say))
    write_json(run.folder / f"{name}.json", summary)
    kept.finish()
    print(f"\n{metrics_markdown(summary)}\n\n{pairs_markdown(summary)}")


def _coulomb_time(run: Run) -> None:
    from kernelformer.bench.coulomb_time import measure_times, times_markdown
    from kernelformer.tasks.files import write_json

    rows = measure_times(run.seeds, say=run.say)
    write_json(run.folder / f"{run.name}.json", rows)
    print(f"\n{times_markdown(rows)}")


def _generation(run: Run) -> None:
    import transformers

    from kernelformer.bench.decoding import decoding_markdown, decoding_plots, measure_decoding
    from kernelformer.hf.gguf import import_gguf
    from kernelformer.hf.read import read_decoder
    from kernelformer.tasks.files import write_json
    from kernelformer.tasks.packaged import small_decoder

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    folder = run.folder / "smollm2"
    if not folder.is_dir():
        run.say("reading the GGUF file, once")
        import_gguf(small_decoder(), folder)
    rows = measure_decoding(read_decoder(str(folder)), "hedgehog", 64, 64, seconds=4.0 * run.seeds, say=run.say)
    write_json(run.folder / f"{run.name}.json", rows)
    run.write_plots(decoding_plots(rows))
    print(f"\n{decoding_markdown(rows)}")


CLAIMS: dict[str, Claim] = {
    "anisotropy": Claim(
        "DARKFormer: random features suffer from anisotropic inputs, and sampling that knows the covariance does not",
        seeds=16,
        measure=_anisotropy,
    ),
    "coulomb-synthetic": Claim(
        "Coulomb: on a synthetic task, features learned as particles beat random and importance-sampled ones",
        seeds=5,
        measure=_coulomb_synthetic,
        scales=("small", "paper"),
    ),
    "coulomb-text": Claim(
        "Coulomb: kernels of attention learned as particles classify film reviews better than frozen ones and softmax",
        seeds=3,
        measure=_coulomb_text,
        scales=("small", "paper"),
    ),
    "coulomb-time": Claim(
        "Coulomb: attention with learned particles takes the time of that with frozen ones, linear in the length",
        seeds=16,
        measure=_coulomb_time,
    ),
    "generation": Claim(
        "All three: with a kernel, a token costs the same time and memory after any context (SmolLM2-135M, window 64)",
        seeds=2,
        measure=_generation,
    ),
}
