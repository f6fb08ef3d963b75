"""The command ``kernelformer``: a file a verb."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; exit 0 when done, 1 when interrupted or broken, 2 when asked for what cannot be."""
    from kernelformer.cli.extras import EXTRAS, missing
    from kernelformer.errors import KernelformerError
    from kernelformer.tasks.files import why_not_written

    try:
        from kernelformer.cli.app import app

        app()
    except KernelformerError as error:
        _refuse(" ".join(str(error).split()))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        _refuse(missing(package))
    except Exception as error:
        reason = why_not_written(error)
        if reason is None:
            raise
        _refuse(f"{reason}; what was finished is kept, and the same command goes on from there", code=1)


def _refuse(reason: str, code: int = 2) -> None:
    print(f"kernelformer: {reason}", file=sys.stderr)
    sys.exit(code)
