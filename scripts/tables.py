"""Prints the generated tables of README.md and docs/ into their marked regions.

A region lies between the lines ``<!-- table:NAME -->`` and ``<!-- /table:NAME -->``. Without
arguments every region is written anew; with ``--check`` nothing is written, and the exit code
is 1 if a region differs from what the code says.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import kernelformer as kf
from claims import summary_markdown
from kernelformer.bench import engine_table, transfer_tables
from kernelformer.bench.anisotropy import anisotropy_markdown
from kernelformer.bench.coulomb_synthetic_tables import (
    budget_markdown,
    claims_markdown,
    noise_markdown,
    weights_markdown,
)
from kernelformer.bench.coulomb_text_tables import metrics_markdown, pairs_markdown
from kernelformer.bench.coulomb_time import times_markdown
from kernelformer.bench.darkformer_finetuning import finetuning_markdown
from kernelformer.bench.decoder_conversion import conversion_markdown
from kernelformer.bench.decoding import decoding_markdown
from kernelformer.bench.efficiency import efficiency_markdown
from kernelformer.bench.language_modelling import language_markdown
from kernelformer.bench.lra import lra_markdown
from kernelformer.bench.markdown import markdown_table
from kernelformer.cli.claims import CLAIMS
from kernelformer.cli.comparing import ranking_markdown
from kernelformer.feature_maps import build_feature_map, fixed_width, width_for

ROOT = Path(__file__).resolve().parent.parent
HEAD_DIM = NUM_FEATURES = 64
STARTERS = ["elu", "favor", "hedgehog", "darkformer", "flexformer_s", "flexformer_n"]
REGION = re.compile(r"(<!-- table:(?P<name>[\w-]+) -->\n)(?P<body>.*?)(<!-- /table:(?P=name) -->)", re.DOTALL)


def kernels_table(names: Sequence[str] | None = None) -> str:
    """A row for each kernel, at head_dim 64 and, where the width is free, 64 features."""
    header = ["Kernel", "Source", "Sign", "Features", "Parameters per head", "Causal"]
    rows = (kernel_row(name) for name in (kf.FEATURE_MAPS if names is None else names))
    return markdown_table(header, rows, left=range(len(header))) + "\n"


def kernel_row(name: str) -> list[str]:
    """What the class declares, what its docstring says, and what one instance holds."""
    feature_map = build_feature_map(name, HEAD_DIM, 1, width_for(name, NUM_FEATURES))
    docstring = inspect.getdoc(type(feature_map)) or ""
    return [
        f"`{name}`",
        source(docstring),
        "positive" if feature_map.is_positive else "signed",
        f"{feature_map.num_features:,}, fixed" if fixed_width(name) else width_rule(docstring),
        f"{sum(parameter.numel() for parameter in feature_map.parameters()):,}",
        ("only" if feature_map.is_gated else "yes") if is_causal(feature_map) else "no",
    ]


def source(docstring: str) -> str:
    """The References section in one line, its arXiv numbers linked."""
    found = re.search(r"^References:\n(?P<text>(?: .*\n?)+)", docstring, re.MULTILINE)
    if found is None:
        raise SystemExit(f"no 'References:' section in:\n{docstring}")
    text = " ".join(found["text"].split()).removesuffix(".")
    return re.sub(r"arXiv (\d{4}\.\d{5})", r"[\1](https://arxiv.org/abs/\1)", text)


def width_rule(docstring: str) -> str:
    """What num_features may be: the first clause of its line under Args, without the letter M."""
    found = re.search(r"^\s*num_features:\s*(?:M, )?(?P<rule>[^.:;\n]+)", docstring, re.MULTILINE)
    return "any number" if found is None else found["rule"].strip()


def is_causal(feature_map: kf.FeatureMap) -> bool:
    """Whether changing the last key changes no bit of the outputs before it."""
    attention = kf.KernelAttention(feature_map, causal=True, below_crossover="ignore")
    q, k, v = torch.randn(3, 1, 1, 5, HEAD_DIM, generator=torch.Generator().manual_seed(0))
    changed = k.clone()
    changed[:, :, -1] *= 5.0
    with torch.no_grad():
        return torch.equal(attention(q, k, v)[:, :, :-1], attention(q, changed, v)[:, :, :-1])


def claims_table() -> str:
    """The claims that `kernelformer reproduce` measures, with the command of each."""
    rows = ([claim.summary, f"`kernelformer reproduce {name}`"] for name, claim in CLAIMS.items())
    return markdown_table(["Claim", "Command"], rows, left=(0, 1)) + "\n"


def study_table(name: str, markdown: Callable[[Any], str]) -> Callable[[], str]:
    """The table of a study in docs/results; where it has not run, that it hasn't."""

    def table() -> str:
        path = ROOT / "docs/results" / f"{name}.json"
        return markdown(json.loads(path.read_text(encoding="utf-8"))) + "\n" if path.is_file() else "Not run yet.\n"

    return table


def bench_table(number: int) -> Callable[[], str]:
    """One of the tables of `make bench`, from its copy in docs/results: times, crossovers, memory."""
    return study_table("bench", lambda result: engine_table.markdown(engine_table.tables(result)[number]).rstrip("\n"))


def bench_setting(result: dict[str, Any]) -> str:
    """Machine and sizes of that run, and what is missing from it."""
    setting, products, copies = result["setting"], *(rate / 1e9 for rate in result["rates"].values())
    text = (
        f"{result['machine']}, {result['threads']} threads, torch {result['torch']}; {setting['dtype']}, batch 1, "
        f"{setting['num_heads']} heads of width {setting['head_dim']}, {setting['num_features']} features. In the same "
        f"run, matrix products at {products:,.0f} GFLOP/s and copies at {copies:,.1f} GB/s (read and written)."
    )
    return "\n".join([text, "", *(f"- {reason}" for reason in engine_table.reasons(result))])


TABLES: dict[str, Callable[[], str]] = {
    "anisotropy": study_table("anisotropy", lambda rows: anisotropy_markdown(rows, 256)),
    "bench-crossover": bench_table(1),
    "bench-memory": bench_table(2),
    "bench-setting": study_table("bench", bench_setting),
    "bench-time": bench_table(0),
    "claims": claims_table,
    "compare": study_table("compare", lambda results: ranking_markdown(results["kernels"])),
    "demo": study_table("demo-all", lambda results: ranking_markdown(results["kernels"])),
    "coulomb-synthetic-accuracy": study_table(
        "coulomb-synthetic-small", lambda study: noise_markdown(study, "accuracy")
    ),
    "coulomb-synthetic-budget": study_table("coulomb-synthetic-small", budget_markdown),
    "coulomb-synthetic-claims": study_table("coulomb-synthetic-small", claims_markdown),
    "coulomb-synthetic-f1": study_table("coulomb-synthetic-small", lambda study: noise_markdown(study, "f1")),
    "coulomb-synthetic-weights": study_table("coulomb-synthetic-small", weights_markdown),
    "coulomb-text-metrics": study_table("coulomb-text-small", metrics_markdown),
    "coulomb-text-pairs": study_table("coulomb-text-small", pairs_markdown),
    "coulomb-time": study_table("coulomb-time", times_markdown),
    "coulomb-valence-metrics": study_table("coulomb-valence-small", metrics_markdown),
    "coulomb-valence-pairs": study_table("coulomb-valence-small", pairs_markdown),
    "coulomb-verses-metrics": study_table("coulomb-verses-small", metrics_markdown),
    "coulomb-verses-pairs": study_table("coulomb-verses-small", pairs_markdown),
    "efficiency": study_table("efficiency", efficiency_markdown),
    "generation": study_table("generation", decoding_markdown),
    "decoder-conversion": study_table("decoder-conversion-small", conversion_markdown),
    "darkformer-finetuning": study_table("darkformer-finetuning-small", finetuning_markdown),
    "kernels": kernels_table,
    "language-modelling": study_table("language-modelling-small", language_markdown),
    "lra": study_table("lra-small", lra_markdown),
    "transfer-claims": study_table("transfer-small", transfer_tables.claims_markdown),
    "transfer-scores": study_table("transfer-small", transfer_tables.scores_markdown),
    "summary": summary_markdown,
    "starters": lambda: kernels_table(STARTERS),
}


def printed(text: str) -> str:
    """The text with every region as the code prints it."""

    def replace(region: re.Match[str]) -> str:
        if region["name"] not in TABLES:
            raise SystemExit(f"no table {region['name']!r}; known: {', '.join(TABLES)}")
        return f"{region[1]}{TABLES[region['name']]()}{region[4]}"

    return REGION.sub(replace, text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables, or compare them."""
    parser = argparse.ArgumentParser(description="Write the generated tables of README.md and docs/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a table is out of date")
    check = parser.parse_args(arguments).check
    stale = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        new = printed(text)
        if new != text:
            stale.append(path.relative_to(ROOT).as_posix())
            if not check:
                path.write_text(new, encoding="utf-8")
    if stale:
        print("out of date, run `make tables`:" if check else "written:", ", ".join(stale))
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
