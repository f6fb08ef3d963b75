"""Claims of Flexformer, arXiv 2606.27748."""

from __future__ import annotations

from kernelformer.cli.claims.claim import Claim, Run

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


CLAIMS = {
    "efficiency": Claim(
        "Flexformer: at 4,000 tokens a training step is 2.6 times as fast as softmax's and takes 84 % less memory",
        seeds=3,
        measure=_efficiency,
    ),
}
