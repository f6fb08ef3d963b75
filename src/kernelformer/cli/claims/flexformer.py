"""Claims of Flexformer, arXiv 2606.27748."""

from __future__ import annotations

from pathlib import Path

from kernelformer.cli.claims.claim import Claim, Run
from kernelformer.errors import KernelformerError

__all__ = ["CLAIMS"]


def _efficiency(run: Run) -> None:
    from kernelformer.bench.efficiency import efficiency_markdown, measure_efficiency
    from kernelformer.bench.rows import Rows
    from kernelformer.tasks.files import write_json

    rows = Rows(run.folder / f"{run.name}.rows.jsonl", {"repeats": run.seeds})
    study = measure_efficiency(run.seeds, rows, say=run.say)
    write_json(run.folder / f"{run.name}.json", study)
    rows.finish()
    print(f"\n{efficiency_markdown(study)}")


def _language_modelling(run: Run) -> None:
    from dataclasses import asdict, replace

    import transformers

    from kernelformer.bench.language_modelling import SCALES, language_markdown, run_study
    from kernelformer.bench.rows import Rows
    from kernelformer.tasks.files import write_json

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    name, scale = f"{run.name}-{run.scale}", SCALES[run.scale]
    if run.data is not None:
        scale = replace(scale, data=run.data)
    kept = Rows(run.folder / f"{name}.rows.jsonl", {"seeds": run.seeds, **asdict(scale)})
    study = run_study(scale, run.seeds, kept, run.folder / f"{name}.checkpoints", say=run.say)
    write_json(run.folder / f"{name}.json", study)
    kept.finish()
    print(f"\n{language_markdown(study)}")


def _lra(run: Run) -> None:
    import transformers

    from kernelformer.bench.lra import SCALES, lra_markdown, run_study, scale_settings
    from kernelformer.bench.rows import Rows
    from kernelformer.tasks.files import write_json

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    name, scale = f"{run.name}-{run.scale}", SCALES[run.scale]
    if run.data is not None and run.scale == "small":
        raise KernelformerError("the small scale has stand-ins of its own: give --data with --scale pytorch or paper")
    originals = None if run.data is None else Path(run.data)
    kept = Rows(run.folder / f"{name}.rows.jsonl", {"seeds": run.seeds, "data": run.data, **scale_settings(scale)})
    study = run_study(scale, run.seeds, kept, run.folder / f"{name}.checkpoints", originals=originals, say=run.say)
    write_json(run.folder / f"{name}.json", study)
    kept.finish()
    print(f"\n{lra_markdown(study)}")


def _transfer(run: Run) -> None:
    import transformers

    from kernelformer.bench.rows import Rows
    from kernelformer.bench.transfer import SCALES, run_transfer, scale_settings
    from kernelformer.bench.transfer_tables import claims_markdown, scores_markdown
    from kernelformer.tasks.files import write_json

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    name, scale = f"{run.name}-{run.scale}", SCALES[run.scale]
    kept = Rows(run.folder / f"{name}.rows.jsonl", scale_settings(scale))
    study = run_transfer(scale, run.seeds, kept, run.archives, say=run.say)
    write_json(run.folder / f"{name}.json", study)
    kept.finish()
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
