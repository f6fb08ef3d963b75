"""What all three papers claim."""

from __future__ import annotations

from dataclasses import asdict

from kernelformer.cli.claims.claim import Claim, Run

__all__ = ["CLAIMS"]


def _generation(run: Run) -> None:
    from kernelformer.bench.decoding import decoding_markdown, decoding_plots, measure_decoding

    decoder, _ = run.small_decoder()
    seconds = 4.0 * run.seeds
    study = run.study(
        {"seconds": seconds},
        lambda rows: measure_decoding(decoder, "hedgehog", 64, 64, rows=rows, seconds=seconds, say=run.say),
    )
    run.write_plots(decoding_plots(study))
    print(f"\n{decoding_markdown(study)}")


def _conversion(run: Run) -> None:
    from kernelformer.bench.decoder_conversion import SCALES, conversion_markdown, measure_conversions, window_plots
    from kernelformer.tasks.documents import messages_by_year

    scale, texts = SCALES[run.scale], messages_by_year()
    model, tokenizer = run.small_decoder()
    study = run.study(
        asdict(scale), lambda rows: measure_conversions(model, tokenizer, texts, scale, run.seeds, rows, run.say)
    )
    run.write_plots(window_plots(study))
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
