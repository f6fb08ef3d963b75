"""Claims of DARKFormer, arXiv 2603.04127."""

from __future__ import annotations

from dataclasses import asdict

from kernelformer.cli.claims.claim import Claim, Run

__all__ = ["CLAIMS"]


def _anisotropy(run: Run) -> None:
    from kernelformer.bench.anisotropy import WIDTHS, anisotropy_markdown, anisotropy_plots, measure_anisotropy

    study = run.study({"draws": run.seeds}, lambda rows: measure_anisotropy(run.seeds, rows, say=run.say))
    run.write_plots(anisotropy_plots(study))
    for width in WIDTHS:
        print(f"\n{width} features\n\n{anisotropy_markdown(study, width)}")


def _finetuning(run: Run) -> None:
    from kernelformer.bench.darkformer_finetuning import SCALES, finetuning_markdown, measure_finetuning
    from kernelformer.tasks.documents import messages_by_year

    scale, texts = SCALES[run.scale], messages_by_year()
    model, tokenizer = run.small_decoder()
    study = run.study(
        asdict(scale), lambda rows: measure_finetuning(model, tokenizer, texts, scale, run.seeds, rows, run.say)
    )
    print(f"\n{finetuning_markdown(study)}")


CLAIMS = {
    "darkformer-finetuning": Claim(
        "DARKFormer: fine-tuned, it needs fewer steps than FAVOR+, spikes less, and closes part of the gap to softmax",
        seeds=3,
        measure=_finetuning,
        scales=("small", "full"),
    ),
    "anisotropy": Claim(
        "DARKFormer: random features suffer from anisotropic inputs, and sampling that knows the covariance does not",
        seeds=16,
        measure=_anisotropy,
    ),
}
