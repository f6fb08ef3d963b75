"""What all three papers claim."""

from __future__ import annotations

from dataclasses import asdict

from kernelformer.cli.claims.claim import Claim, Run

__all__ = ["CLAIMS"]


def _generation(run: Run) -> None:
    import transformers

    from kernelformer.bench.decoding import decoding_markdown, decoding_plots, measure_decoding
    from kernelformer.hf.read import read_decoder
    from kernelformer.tasks.files import write_json

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    decoder = read_decoder(run.small_decoder())
    rows = measure_decoding(decoder, "hedgehog", 64, 64, seconds=4.0 * run.seeds, say=run.say)
    write_json(run.folder / f"{run.name}.json", rows)
    run.write_plots(decoding_plots(rows))
    print(f"\n{decoding_markdown(rows)}")


def _conversion(run: Run) -> None:
    import transformers

    from kernelformer.bench.decoder_conversion import SCALES, conversion_markdown, conversion_plots, measure_conversions
    from kernelformer.bench.rows import Rows
    from kernelformer.hf.read import read_decoder, read_tokenizer
    from kernelformer.tasks.files import write_json
    from kernelformer.tasks.modelling import messages_by_year

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    name, scale = f"{run.name}-{run.scale}", SCALES[run.scale]
    kept = Rows(run.folder / f"{name}.rows.jsonl", asdict(scale))
    model = run.small_decoder()
    study = measure_conversions(
        read_decoder(model), read_tokenizer(model), messages_by_year(), scale, run.seeds, kept, run.say
    )
    write_json(run.folder / f"{name}.json", study)
    run.write_plots(conversion_plots(study))
    kept.finish()
    print(f"\nperplexity of the teacher {study['teacher']['perplexity']:.2f}\n\n{conversion_markdown(study)}")


CLAIMS = {
    "decoder-conversion": Claim(
        "A pretrained decoder (SmolLM2-135M) converted to each kernel, alone and behind windows of exact softmax",
        seeds=3,
        measure=_conversion,
        scales=("small", "full"),
    ),
    "generation": Claim(
        "All three: with a kernel, a token costs the same time and memory after any context (SmolLM2-135M, window 64)",
        seeds=2,
        measure=_generation,
    ),
}
