"""Claims of DARKFormer, arXiv 2603.04127."""

from __future__ import annotations

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


CLAIMS = {
    "anisotropy": Claim(
        "DARKFormer: random features suffer from anisotropic inputs, and sampling that knows the covariance does not",
        seeds=16,
        measure=_anisotropy,
    ),
}
