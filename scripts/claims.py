"""The claims of the three papers in one table: the paper's figure, ours from docs/results, the command, a verdict."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kernelformer.bench.coulomb_synthetic_tables import verdicts
from kernelformer.bench.darkformer_finetuning import closed_gap, spikes_of
from kernelformer.bench.decoder_conversion import summarise_conversions
from kernelformer.bench.lra import REPEATED
from kernelformer.bench.markdown import markdown_table
from kernelformer.bench.transfer_tables import transfer_claims

__all__ = ["summary_markdown"]

RESULTS: Final = Path(__file__).resolve().parent.parent / "docs" / "results"
SMALL, HERE, NOT_HERE, OPEN = "holds at small scale", "holds", "does not hold here", "undecided here"

Finding = tuple[str, str]
"""What was measured here, and the verdict."""


@dataclass(frozen=True)
class Entry:
    """A claim.

    Attributes:
        figure: the paper's.
        how: the command, or the tests that prove it.
        file: of docs/results, that ``read`` makes a finding of; a claim that has none was not run.
        read: None where the finding is ``proved``.
        needs: what it takes, where it was not run.
        proved: the finding of a claim that tests prove.
    """

    claim: str
    figure: str
    how: str
    file: str = ""
    read: Callable[[Any], Finding] | None = None
    needs: str = ""
    proved: str = ""

    def row(self) -> list[str]:
        path = RESULTS / self.file
        if self.read is not None and path.is_file():
            here, verdict = self.read(json.loads(path.read_text(encoding="utf-8")))
        else:
            here = self.proved
            verdict = HERE if self.proved else f"not run: needs {self.needs}"
        return [self.claim, self.figure, here, self.how, verdict]


def summary_markdown() -> str:
    """A table a paper."""
    parts = []
    for paper, entries in PAPERS.items():
        header = ["claim", "the paper", "here", "how", "verdict"]
        table = markdown_table(header, (entry.row() for entry in entries), left=range(len(header)))
        parts.append(f"**{paper}**\n\n{table}")
    return "\n\n".join(parts) + "\n"


def _command(claim: str, scale: str = "") -> str:
    return f"`kernelformer reproduce {claim}{f' --scale {scale}' if scale else ''}`"


def _speed(study: Any) -> Finding:
    rows = {row["method"]: row for row in study["rows"]}
    kernel, eager, sdpa = (rows[name] for name in ("flexformer_n", "softmax (eager)", "softmax (SDPA)"))
    of_sdpa = kernel["sdpa_seconds"] / kernel["seconds"]
    of_eager = of_sdpa * eager["seconds"] / eager["sdpa_seconds"]
    assert sdpa["seconds"] > 0
    here = f"{of_eager:.1f} times as fast as softmax with its weights in memory, {of_sdpa:.1f} times as SDPA (CPU)"
    return here, HERE if min(of_eager, of_sdpa) >= 2.6 else NOT_HERE


def _memory(study: Any) -> Finding:
    rows = {row["method"]: row["mib"] for row in study["rows"]}
    less = 1 - rows["flexformer_n"] / rows["softmax (eager)"]
    more = rows["flexformer_n"] / rows["softmax (SDPA)"] - 1
    here = f"{less:.0%} less than softmax with weights in memory; {more:.0%} more than SDPA, which is linear, too (CPU)"
    return here, f"{HERE} against softmax with weights in memory" if less >= 0.84 else NOT_HERE


def _tests(study: Any, kernel: str) -> list[float]:
    return [run["test"] for run in study["runs"] if run["row"] == kernel]


def _near_softmax(study: Any) -> Finding:
    kernel, softmax = (statistics.fmean(_tests(study, name)) for name in ("flexformer_n", "softmax"))
    spread = statistics.stdev(_tests(study, "flexformer_n"))
    here = f"{kernel:.2f} ± {spread:.2f} against {softmax:.2f}: {kernel / softmax - 1:+.1%}"
    return here, SMALL if kernel <= 1.03 * softmax else NOT_HERE


def _order(study: Any) -> Finding:
    listed = [
        row["kernel"] for row in study["settings"]["rows"] if row["small"] is not None and row["kernel"] != "softmax"
    ]
    means = {name: statistics.fmean(_tests(study, name)) for name in listed}
    here = " < ".join(f"{name} {means[name]:.1f}" for name in sorted(listed, key=lambda name: means[name]))
    first = min(means, key=lambda name: means[name])
    return here, SMALL if first == "flexformer_n" else f"{NOT_HERE}: {first} is first"


def _arena(study: Any) -> Finding:
    means = {}
    for kernel in REPEATED:
        scores: dict[int, list[float]] = {}
        for run in study["runs"]:
            if run["kernel"] == kernel:
                scores.setdefault(run["seed"], []).append(100 * run["test"])
        means[kernel] = [statistics.fmean(found) for found in scores.values()]
    here = ", ".join(f"{name} {statistics.fmean(x):.1f} ± {statistics.stdev(x):.1f}" for name, x in means.items())
    gaps = [
        a - b for other in ("softmax", "hedgehog") for a, b in zip(means["flexformer_n"], means[other], strict=True)
    ]
    verdict = SMALL if min(gaps) > 0 else NOT_HERE if statistics.fmean(gaps) < 0 else OPEN
    return f"mean of two short tasks: {here}", verdict


def _gap(study: Any) -> Finding:
    every, restricted = (closed_gap(study, mode) for mode in ("all", "qkv"))
    verdict = SMALL if min(every, restricted) > 0 else NOT_HERE
    return f"{every:.0%} of the gap closed by all weights, {restricted:.0%} by q, k, v (SmolLM2-135M)", verdict


def _spikes(study: Any) -> Finding:
    factors = study["settings"]["factors"]
    favor, dark = (sum(spikes_of(study, k, factor)[0] for factor in factors) for k in ("favor", "darkformer"))
    # Two standard deviations of the difference of two counts.
    clear = abs(favor - dark) > 2 * (favor + dark) ** 0.5
    verdict = OPEN if not clear else SMALL if dark < favor else NOT_HERE
    return f"{dark} against {favor} at {' and '.join(map(str, factors))} times the rate (SmolLM2-135M)", verdict


def _conversion(study: Any) -> Finding:
    most = study["settings"]["steps"][-1]
    rows = {r["kernel"]: r for r in summarise_conversions(study) if not r["window"] and r["steps"] == most}
    favor, dark = (rows[name] for name in ("favor", "darkformer"))
    apart = favor["perplexity"] - dark["perplexity"] > favor["spread"] + dark["spread"]
    return f"{dark['ratio']:.2f} against {favor['ratio']:.2f} times the teacher's perplexity", SMALL if apart else OPEN


def _anisotropy(rows: Any) -> Finding:
    found = {
        row["kernel"]: row["error"]
        for row in rows
        if (row["squared_norm"], row["condition"], row["num_features"]) == (1.0, 4096, 256)
    }
    aware, plain = found["softmax_sampling, optimal"], found["favor, orthogonal"]
    here = f"error {aware:.2f} against {plain:.2f} at condition number 4,096, E‖x‖² = 1; none at an encoder's norms"
    return here, f"{HERE} at small norms" if aware < plain else NOT_HERE


def _claimed(name: str) -> Callable[[Any], Finding]:
    def read(study: Any) -> Finding:
        found = {verdict.claim: verdict for verdict in verdicts(study)}[name]
        return found.here, _judged(found.verdict)

    return read


def _judged(verdict: str) -> str:
    return {"seen here": SMALL, "the reverse is seen": f"{NOT_HERE}: the reverse is seen"}.get(verdict, OPEN)


def _pairs(summary: Any) -> Finding:
    pairs = {pair["kernel"]: pair for pair in summary["pairs"]}
    best = summary["best"].removeprefix("kernel ")
    found = pairs[best]["vanilla"]
    low, high = (100 * bound for bound in found["interval"])
    better = [kernel for kernel, pair in pairs.items() if pair["vanilla"]["interval"][0] > 0]
    gain = f"{100 * found['accuracy']:+.1f} points [{low:+.1f}, {high:+.1f}]"
    here = f"{best} {gain}; {len(better)} of {len(pairs)} kernels gain"
    return here, SMALL if 2 * len(better) > len(pairs) else OPEN if better else NOT_HERE


def _above_softmax(summary: Any) -> Finding:
    best = max(summary["pairs"], key=lambda pair: pair["softmax"]["accuracy"])
    low, high = (100 * bound for bound in best["softmax"]["interval"])
    here = f"the best, {best['kernel']}: {100 * best['softmax']['accuracy']:+.1f} points [{low:+.1f}, {high:+.1f}]"
    return here, SMALL if low > 0 else NOT_HERE


def _below_softmax(summary: Any) -> Finding:
    here, _ = _above_softmax(summary)
    low, high = max((pair["softmax"] for pair in summary["pairs"]), key=lambda pair: pair["accuracy"])["interval"]
    return here, SMALL if high < 0 else NOT_HERE if low > 0 else OPEN


def _transferred(number: int) -> Callable[[Any], Finding]:
    def read(study: Any) -> Finding:
        *_, here, verdict = transfer_claims(study)[number]
        return here, _judged(verdict)

    return read


def _same_time(rows: Any) -> Finding:
    ratios, slopes = ([row[name] for row in rows] for name in ("ratio", "slope"))
    slope = f"slope {min(slopes):.2f} to {max(slopes):.2f}"
    here = f"{min(ratios):.2f} to {max(ratios):.2f} times the time of frozen ones, {slope}"
    equal = all(0.95 <= ratio <= 1.05 for ratio in ratios)
    return here, HERE if equal and max(slopes) <= 1.1 else NOT_HERE


def _generation(rows: Any) -> Finding:
    first, last = rows[0], rows[-1]
    here = (
        f"{first['kernel_ms']:.0f} ms and {first['kernel_mib']:.1f} MiB a token after {first['context']:,}, "
        f"{last['kernel_ms']:.0f} and {last['kernel_mib']:.1f} after {last['context']:,}"
    )
    flat = last["kernel_mib"] == first["kernel_mib"] and last["kernel_ms"] <= 1.1 * first["kernel_ms"]
    return here, HERE if flat else NOT_HERE


_FACTS = "`tests/feature_maps/test_paper_facts.py`"
_LANGUAGE = ("language-modelling-small.json", _command("language-modelling"))
_SYNTHETIC = ("coulomb-synthetic-small.json", _command("coulomb-synthetic"))
_TEXT = ("coulomb-text-small.json", _command("coulomb-text"))
_TRANSFER = ("transfer-small.json", _command("transfer"))
_GPU_LANGUAGE = "WikiText-103 and a GPU for 100,000 steps"
_GLUE = "RoBERTa-base, GLUE and a GPU"
_GEMMA = "Gemma-2B, C4 and accelerators"

PAPERS: Final[dict[str, list[Entry]]] = {
    "Flexformer, arXiv 2606.27748": [
        Entry(
            "its learned spectral kernels are positive definite, and Flexformer_n holds Flexformer_s",
            "equations 5, 6",
            _FACTS,
            proved="proved on random inputs, with the paper's product form",
        ),
        Entry("training at N = 4,000 is faster", "2.6 times", _command("efficiency"), "efficiency.json", _speed),
        Entry("and takes less memory", "84 % less", _command("efficiency"), "efficiency.json", _memory),
        Entry(
            "Flexformer_n models language nearly as well as softmax (41M parameters)",
            "31.6 against 31.3",
            _LANGUAGE[1],
            _LANGUAGE[0],
            _near_softmax,
            needs=_GPU_LANGUAGE,
        ),
        Entry(
            "and better than all linear kernels",
            "n 31.6 < s 32.7 < PolaFormer 32.9 < Hedgehog 33.2 < cosFormer 34.2 < RFA 35.3 < Linear 35.6",
            _LANGUAGE[1],
            _LANGUAGE[0],
            _order,
            needs=_GPU_LANGUAGE,
        ),
        Entry(
            "with 247M parameters it is better than softmax",
            "22.3 against 23.8",
            _command("language-modelling", "paper-big"),
            needs=_GPU_LANGUAGE,
        ),
        Entry(
            "perplexity falls with n, to about n = 64",
            "36.2 (n = 4) to 32.1 (64), 31.6 (256)",
            _command("language-modelling", "paper"),
            needs=_GPU_LANGUAGE,
        ),
        Entry(
            "Long Range Arena: Flexformer_n is best on average",
            "59.99; Hedgehog 57.47, softmax 56.55",
            _command("lra"),
            "lra-small.json",
            _arena,
            needs="the arena's data and a GPU (`--scale paper` or `pytorch`)",
        ),
        Entry(
            "distilled, it keeps 98 % of its teacher's score (GLUE; other tasks here)",
            "83.7 of RoBERTa's 85.5; Hedgehog 83.3",
            _TRANSFER[1],
            _TRANSFER[0],
            _transferred(0),
            needs=_GLUE,
        ),
        Entry(
            "distilled on one task and trained on another, it loses less than Hedgehog",
            "CoLA 60.3 against 55.6 (Table 4)",
            _TRANSFER[1],
            _TRANSFER[0],
            _transferred(1),
            needs=_GLUE,
        ),
        Entry(
            "distillation reaches a lower loss, in fewer steps, than Hedgehog's",
            "2.842 against 2.858 (MNLI)",
            "",
            needs=_GLUE,
        ),
    ],
    "DARKFormer, arXiv 2603.04127": [
        Entry(
            "theorem 3.2: the proposal of least variance for Gaussian queries and keys",
            "Σ* = (I + 2Λ)(I − 2Λ)⁻¹",
            "`tests/bench/test_anisotropy.py`",
            proved="second moments as derived: isotropic ones diverge as λ max → 1/6, the proposal's as λ max → 1/2",
        ),
        Entry(
            "its features are unbiased for exp(qᵀΣk)",
            "equation 3",
            _FACTS,
            proved="within the Monte-Carlo error",
        ),
        Entry(
            "isotropic random features suffer from anisotropy, data-aware ones less",
            "no figure",
            _command("anisotropy"),
            "anisotropy.json",
            _anisotropy,
        ),
        Entry("pretrained anew, it narrows the gap of random features to softmax", "not known here", "", needs=_GEMMA),
        Entry(
            "in fine-tuning, all weights or Q, K, V and covariance alone, too",
            "not known here",
            _command("darkformer-finetuning"),
            "darkformer-finetuning-small.json",
            _gap,
            needs=_GEMMA,
        ),
        Entry(
            "higher rates give fewer loss spikes than with isotropic features",
            "not known here",
            _command("darkformer-finetuning"),
            "darkformer-finetuning-small.json",
            _spikes,
            needs=_GEMMA,
        ),
        Entry(
            "taught by softmax, a learned covariance is ahead of isotropic features",
            "no figure",
            _command("decoder-conversion"),
            "decoder-conversion-small.json",
            _conversion,
        ),
    ],
    "Coulomb, arXiv 2607.23869": [
        Entry(
            "synthetic task: particles are above random features",
            ".657 against .56",
            _SYNTHETIC[1],
            _SYNTHETIC[0],
            _claimed("accuracy: particles, tuned > random features, tuned"),
        ),
        Entry(
            "the same, at the printed settings",
            ".657 against .56",
            _SYNTHETIC[1],
            _SYNTHETIC[0],
            _claimed("accuracy: particles, printed settings > random features"),
        ),
        Entry(
            "and above an RBF machine",
            ".657 against .63",
            _SYNTHETIC[1],
            _SYNTHETIC[0],
            _claimed("accuracy: particles, tuned > svm_rbf, tuned"),
        ),
        Entry(
            "importance-sampled features are far below random ones",
            ".48 against .56",
            _SYNTHETIC[1],
            _SYNTHETIC[0],
            _claimed("accuracy: random features > importance sampled"),
        ),
        Entry(
            "a repulsion of 0.5 to 1 is best at moderate noise",
            "no figure",
            _SYNTHETIC[1],
            _SYNTHETIC[0],
            _claimed("printed settings, log: λ of 0.5 to 1 > λ = 0 at σ = 0.28 and 3.6"),
        ),
        Entry(
            "64 features keep 90 % of what 256 give",
            "no table",
            _SYNTHETIC[1],
            _SYNTHETIC[0],
            _claimed("particles: 64 features keep 90 % of the accuracy of 256"),
        ),
        Entry(
            "the cloud of particles has a limit",
            "theorems 1, 4",
            _SYNTHETIC[1],
            _SYNTHETIC[0],
            _claimed("λ = 0.5: the spread of the kernel falls as N grows"),
        ),
        Entry(
            "learned kernels classify film reviews better than frozen ones",
            "71.7 against 67.8 (softmaxfeat)",
            _TEXT[1],
            _TEXT[0],
            _pairs,
        ),
        Entry(
            "and better than softmax",
            "71.7 against 68.0",
            _TEXT[1],
            _TEXT[0],
            _above_softmax,
        ),
        Entry(
            "learned ones above frozen ones on SST-2 (sentences by valence here)",
            "81.9 against 81.4 (porf_softplus)",
            _command("coulomb-valence"),
            "coulomb-valence-small.json",
            _pairs,
            needs="SST-2",
        ),
        Entry(
            "on QQP softmax stays ahead of all learned kernels (pairs of verses here)",
            "80.1 against 79.1",
            _command("coulomb-verses"),
            "coulomb-verses-small.json",
            _below_softmax,
            needs="QQP",
        ),
        Entry(
            "a learned kernel costs what a frozen one does, linear in the length",
            "linear",
            _command("coulomb-time"),
            "coulomb-time.json",
            _same_time,
        ),
    ],
    "All three": [
        Entry(
            "a token costs the same after any context",
            "constant",
            _command("generation"),
            "generation.json",
            _generation,
        ),
    ],
}
