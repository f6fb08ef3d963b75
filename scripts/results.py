"""Copies the results of finished runs to docs/results, from which tables and plots of README and docs are printed.

python scripts/results.py --demo runs/demo --demo-all runs/demo-all --compare runs/compare \
    --reproduce runs/reproduce --bench runs/bench
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from kernelformer.bench.drawing import standalone
from kernelformer.bench.plots import plot_scaling
from kernelformer.cli.claims import CLAIMS

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"


def copy_demo(run: Path) -> None:
    """Time of one attention layer against its length, as a picture."""
    cost = json.loads((run / "report.json").read_text(encoding="utf-8"))["cost"]
    softmax = [(row["length"], row["softmax_ms"]) for row in cost["attention"]]
    kernel = [(row["length"], row["kernel_ms"]) for row in cost["attention"]]
    plot = plot_scaling(softmax, kernel, "one attention layer, ms", cost["attention_crossover"])
    (RESULTS / "time.svg").write_text(standalone(plot), encoding="utf-8")


def copy_claims(run: Path) -> None:
    """Records and plots of the claims that `kernelformer reproduce` finished there."""
    for name in CLAIMS:
        for path in [run / f"{name}.json", *run.glob(f"{name}-*.json"), *run.glob(f"{name}-*.svg")]:
            if path.is_file():
                shutil.copyfile(path, RESULTS / path.name)


def main() -> None:
    """Copy what is named."""
    parser = argparse.ArgumentParser(description="Copy the results of finished runs to docs/results.")
    for name in ("demo", "demo-all", "compare", "reproduce", "bench"):
        parser.add_argument(f"--{name}", type=Path, help="the folder of the run")
    given = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    if given.demo is not None:
        copy_demo(given.demo)
    if given.demo_all is not None:
        shutil.copyfile(given.demo_all / "compare.json", RESULTS / "demo-all.json")
    if given.compare is not None:
        for suffix in ("json", "svg"):
            shutil.copyfile(given.compare / f"compare.{suffix}", RESULTS / f"compare.{suffix}")
    if given.reproduce is not None:
        copy_claims(given.reproduce)
    if given.bench is not None:
        for path in given.bench.glob("bench*"):
            shutil.copyfile(path, RESULTS / path.name)


if __name__ == "__main__":
    main()
