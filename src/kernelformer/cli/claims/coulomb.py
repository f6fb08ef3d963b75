"""Claims of the Coulomb paper, arXiv 2607.23869."""

from __future__ import annotations

from functools import partial

from kernelformer.cli.claims.claim import Claim, Run

__all__ = ["CLAIMS"]


def _coulomb_synthetic(run: Run) -> None:
    from dataclasses import asdict

    from kernelformer.bench.coulomb_synthetic import SCALES, measure_synthetic
    from kernelformer.bench.coulomb_synthetic_tables import synthetic_markdown, synthetic_plots

    size = SCALES[run.scale]
    settings = {"seeds": run.seeds, **asdict(size)}
    study = run.study(settings, lambda rows: measure_synthetic(run.seeds, run.scale, size, rows, run.say))
    run.write_plots(synthetic_plots(study))
    print(synthetic_markdown(study))


def _coulomb_text(texts: str, run: Run) -> None:
    from kernelformer.bench.coulomb_text import SCALES, run_study, scale_settings
    from kernelformer.bench.coulomb_text_tables import metrics_markdown, pairs_markdown, summarise

    scale = SCALES[texts][run.scale]
    summary = run.study(
        scale_settings(scale),
        lambda rows: summarise(run_study(scale, run.seeds, rows, run.archives, say=run.say)),
    )
    print(f"\n{metrics_markdown(summary)}\n\n{pairs_markdown(summary)}")


def _coulomb_time(run: Run) -> None:
    from kernelformer.bench.coulomb_time import measure_times, times_markdown

    study = run.study({"repeats": run.seeds}, lambda rows: measure_times(run.seeds, rows, say=run.say))
    print(f"\n{times_markdown(study)}")


CLAIMS = {
    "coulomb-synthetic": Claim(
        "Coulomb: on a synthetic task, features learned as particles beat random and importance-sampled ones",
        seeds=5,
        measure=_coulomb_synthetic,
        scales=("small", "paper"),
    ),
    **{
        name: Claim(
            f"Coulomb: kernels of attention learned as particles classify {what} better than frozen ones and softmax",
            seeds=3,
            measure=partial(_coulomb_text, texts),
            scales=("small", "paper"),
        )
        for name, texts, what in (
            ("coulomb-text", "rotten-tomatoes", "film reviews"),
            ("coulomb-valence", "valence", "sentences by sentiment, in the place of SST-2,"),
            ("coulomb-verses", "verses", "pairs of verses, in the place of QQP,"),
        )
    },
    "coulomb-time": Claim(
        "Coulomb: attention with learned particles takes the time of that with frozen ones, linear in the length",
        seeds=16,
        measure=_coulomb_time,
    ),
}
