"""``python -m kernelformer``: the command line."""

from __future__ import annotations

from kernelformer.cli import main

if __name__ == "__main__":
    main()
