"""What a claim is, and what its study is handed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Claim", "Run"]


@dataclass(frozen=True)
class Run:
    """What is asked of a claim's study.

    Attributes:
        name: of the claim; its files are ``folder / f"{name}.json"`` and ``folder / f"{name}-PLOT.svg"``.
        folder: exists.
        seeds: repetitions, at least 2.
        scale: one of the claim's.
        archives: the folder of source archives that carry data.
        data: the originals, where they were given: a folder, or a name that ``datasets`` loads.
        say: prints a line of progress to stderr.
    """

    name: str
    folder: Path
    seeds: int
    scale: str
    archives: Path
    data: str | None
    say: Callable[[str], None]

    def write_plots(self, plots: dict[str, str]) -> None:
        """SVG texts, by the name each has after that of the claim."""
        for plot, text in plots.items():
            (self.folder / f"{self.name}-{plot}.svg").write_text(text, encoding="utf-8")

    def small_decoder(self) -> str:
        """The folder of SmolLM2-135M-Instruct, read from its GGUF file at the first call.

        Raises:
            DataError: the package that carries it is not installed.
        """
        from kernelformer.hf.gguf import import_gguf
        from kernelformer.tasks.packaged import small_decoder

        folder = self.folder / "smollm2"
        if not folder.is_dir():
            self.say("reading the GGUF file, once")
            import_gguf(small_decoder(), folder)
        return str(folder)


@dataclass(frozen=True)
class Claim:
    """A claim, and the study that measures it.

    Attributes:
        summary: the paper, and what it says.
        seeds: repetitions unless told otherwise.
        measure: runs the study.
        scales: names of its sizes, the default first.
        takes_data: whether it can be measured on originals that the user has.
    """

    summary: str
    seeds: int
    measure: Callable[[Run], None]
    scales: tuple[str, ...] = ("full",)
    takes_data: bool = False
