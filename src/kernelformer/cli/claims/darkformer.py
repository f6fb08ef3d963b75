"""Claims of DARKFormer, arXiv 2603.04127."""

from __future__ import annotations

from dataclasses import asdict

from kernelformer.cli.claims.claim import Claim, Run

__all__ = ["CLAIMS"]


def _anisotropy(run: Run) -> None:
    from kernelformer.bench.anisotropy import WIDTHS, anisotropy_markdown, anisotropy_plots, measure_anisotropy
    from kernelformer.tasks.files import write_json

    rows = measure_anisotropy(run.seeds, say=run.say)
    write_json(run.folder / "anisotropy.json", rows)
    run.write_plots(anisotropy_plots(rows))
    for width in WIDTHS:
        print(f"\n{width} features\n\n{anisotropy_markdown(rows, width)}")


def _finetuning(run: Run) -> None:
    import transformers

    from kernelformer.bench.darkformer_finetuning import SCALES, finetuning_markdown, measure_finetuning
    from kernelformer.bench.rows import Rows
    from kernelformer.hf.read import read_decoder, read_tokenizer
    from kernelformer.tasks.files import write_json
    from kernelformer.tasks.modelling import messages_by_year

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    name, scale = f"{run.name}-{run.scale}", SCALES[run.scale]
    kept = Rows(run.folder / f"{name}.rows.jsonl", asdict(scale))
    model = run.small_decoder()
    study = measure_finetuning(
        read_decoder(model), read_tokenizer(model), messages_by_year(), scale, run.seeds, kept, run.say
    )
    write_json(run.folder / f"{name}.json", study)
    kept.finish()
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
