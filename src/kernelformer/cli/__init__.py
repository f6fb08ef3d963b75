"""The command ``kernelformer``: a file a verb."""

from __future__ import annotations

import sys

__all__ = ["main"]

# Which extra brings what a verb may find missing.
_EXTRAS = {
    "accelerate": "cli",
    "datasets": "cli",
    "gguf": "gguf",
    "jinja2": "cli",
    "matplotlib": "cli",
    "peft": "lora",
    "rich": "cli",
    "scipy": "cli",
    "sklearn": "classifier",
    "tomli": "cli",
    "transformers": "cli",
    "typer": "cli",
    "yaml": "cli",
}


def main() -> None:
    """Run the command line; exit 0 when done, 1 when interrupted or broken, 2 when asked for what cannot be."""
    from kernelformer.errors import KernelformerError

    try:
        from kernelformer.cli.app import app

        app()
    except KernelformerError as error:
        _refuse(" ".join(str(error).split()))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        _refuse(f"{package} is missing: pip install 'kernelformer[{_EXTRAS[package]}]'")


def _refuse(reason: str) -> None:
    print(f"kernelformer: {reason}", file=sys.stderr)
    sys.exit(2)
