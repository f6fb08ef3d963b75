"""The command ``kernelformer``: a file a verb."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; exit 0 when done, 1 when interrupted or broken, 2 when asked for what cannot be."""
    try:
        from kernelformer.cli.app import app
    except ImportError as error:
        sys.exit(f"kernelformer: {error.name} is missing: pip install 'kernelformer[cli]'")
    from kernelformer.errors import KernelformerError

    try:
        app()
    except KernelformerError as error:
        print(f"kernelformer: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
