"""The claims of papers that ``kernelformer reproduce`` measures: a file a paper, all together in ``CLAIMS``.

To add one: a function of a ``Run`` that imports its study from ``bench`` inside, prints Markdown tables and writes
files that begin with ``run.stem``; an entry in ``CLAIMS`` of its paper's file; a region in docs/papers.md and its table
in scripts/tables.py.
"""

from __future__ import annotations

from kernelformer.cli.claims import coulomb, darkformer, flexformer, shared
from kernelformer.cli.claims.claim import Claim, Run

__all__ = ["CLAIMS", "Claim", "Run"]

CLAIMS: dict[str, Claim] = {
    name: claim for paper in (flexformer, darkformer, coulomb, shared) for name, claim in paper.CLAIMS.items()
}
