"""Claims of Flexformer, arXiv 2606.27748."""

from __future__ import annotations

from pathlib import Path

from kernelformer.cli.claims.claim import Claim, Run
from kernelformer.errors import KernelformerError

__all__ = ["CLAIMS"]


def _efficiency(run: Run) -> None:
    from kernelformer.bench.efficiency import efficiency_markdown, measure_efficiency

    settings = {"repeats": run.seeds}
    study = run.study(settings, lambda rows: measure_efficiency(run.seeds, rows, say=run.say))
    print(f"\n{efficiency_markdown(study)}")


def _language_modelling(run: Run) -> None:
    from dataclasses import replace

    from kernelformer.bench.language_modelling import SCALES, language_markdown, run_study, scale_settings

    scale = SCALES[run.scale]
    if run.data is not None:
        scale = replace(scale, data=run.data)
    study = run.study(
        scale_settings(scale),
        lambda rows: run_study(scale, run.seeds, rows, run.checkpoints, say=run.say),
    )
    print(f"\n{language_markdown(study)}")


def _lra(run: Run) -> None:
    from kernelformer.bench.lra import SCALES, lra_markdown, run_study, scale_settings

    scale = SCALES[run.scale]
    if run.data is not None and run.scale == "small":
        raise KernelformerError("the small scale has stand-ins of its own: give --data with --scale pytorch or paper")
    originals = None if run.data is None else Path(run.data)
    study = run.study(
        {"data": run.data, **scale_settings(scale)},
        lambda rows: run_study(scale, run.seeds, rows, run.checkpoints, originals=originals, say=run.say),
    )
    print(f"\n{lra_markdown(study)}")


def _transfer(run: Run) -> None:
    from kernelformer.bench.transfer import SCALES, run_transfer, scale_settings
    from kernelformer.bench.transfer_tables import claims_markdown, scores_markdown

    scale = SCALES[run.scale]
    study = run.study(
        scale_settings(scale), lambda rows: run_transfer(scale, run.seeds, rows, run.archives, say=run.say)
    )
    print(f"\n{claims_markdown(study)}\n\n{scores_markdown(study)}")


CLAIMS = {
    "efficiency": Claim(
        "Flexformer: at 4,000 tokens a training step is 2.6 times as fast as softmax's and takes 84 % less memory",
        seeds=3,
        measure=_efficiency,
    ),
    "language-modelling": Claim(
        "Flexformer: a language model with it is nearly as good as with softmax, and better than with other kernels",
        seeds=3,
        measure=_language_modelling,
        scales=("small", "paper", "paper-big"),
        takes_data=True,
    ),
    "lra": Claim(
        "Flexformer: on the Long Range Arena it is on average better than softmax and all other kernels",
        seeds=3,
        measure=_lra,
        scales=("small", "pytorch", "paper"),
        takes_data=True,
    ),
    "transfer": Claim(
        "Flexformer: distilled, it keeps nearly all of its teacher, and where it was not fitted more than Hedgehog",
        seeds=3,
        measure=_transfer,
        scales=("small", "paper"),
    ),
}
