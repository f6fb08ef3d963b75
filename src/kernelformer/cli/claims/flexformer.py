"""Claims of Flexformer, arXiv 2606.27748."""

from __future__ import annotations

from kernelformer.cli.claims.claim import Claim

__all__ = ["CLAIMS"]

CLAIMS: dict[str, Claim] = {}
