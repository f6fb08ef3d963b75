"""What all three papers claim."""

from __future__ import annotations

from kernelformer.cli.claims.claim import Claim, Run

__all__ = ["CLAIMS"]


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


CLAIMS = {
    "generation": Claim(
        "All three: with a kernel, a token costs the same time and memory after any context (SmolLM2-135M, window 64)",
        seeds=2,
        measure=_generation,
    ),
}
