"""What a claim is, and what its study is handed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from kernelformer.bench.rows import Rows

__all__ = ["Claim", "Run"]

_Study = TypeVar("_Study")


@dataclass(frozen=True)
class Run:
    """What is asked of a claim's study.

    Attributes:
        name: of the claim.
        stem: its files in ``folder`` are ``{stem}.json``, ``{stem}.md`` and ``{stem}-PLOT.svg``.
        folder: exists.
        seeds: repetitions, at least 2.
        scale: one of the claim's.
        archives: the folder of source archives that carry data.
        data: the originals, where they were given: a folder, or a name that ``datasets`` loads.
        tensorboard: write loss curves to ``folder / f"{stem}.events"``, a folder for each row.
        say: prints a line of progress to stderr.
    """

    name: str
    stem: str
    folder: Path
    seeds: int
    scale: str
    archives: Path
    data: str | None
    tensorboard: bool
    say: Callable[[str], None]

    @property
    def checkpoints(self) -> Path:
        """Where trainings of the study may keep theirs."""
        return self.folder / f"{self.stem}.checkpoints"

    def study(self, settings: Mapping[str, Any], measure: Callable[[Rows], _Study]) -> _Study:
        """What ``measure`` makes of rows that outlive an interruption, written to STEM.json.

        Args:
            settings: all that decides a row besides its key.
        """
        from kernelformer.bench.rows import Rows
        from kernelformer.tasks.files import write_json

        events = self.folder / f"{self.stem}.events" if self.tensorboard else None
        rows = Rows(self.folder / f"{self.stem}.rows.jsonl", settings, events)
        found = measure(rows)
        write_json(self.folder / f"{self.stem}.json", found)
        rows.finish()
        return found

    def write_plots(self, plots: dict[str, str]) -> None:
        """SVG texts, by the name each has after the stem."""
        from kernelformer.tasks.files import write_text

        for plot, text in plots.items():
            write_text(self.folder / f"{self.stem}-{plot}.svg", text)

    def small_decoder(self) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """SmolLM2-135M-Instruct and its tokenizer, read from its GGUF file at the first call, into a folder here.

        Raises:
            DataError: the package that carries it is not installed.
        """
        from kernelformer.hf.gguf import import_gguf
        from kernelformer.hf.read import read_decoder, read_tokenizer
        from kernelformer.tasks.packaged import small_decoder

        folder = self.folder / "smollm2"
        if not folder.is_dir():
            self.say("reading the GGUF file, once")
            import_gguf(small_decoder(), folder)
        return read_decoder(str(folder)), read_tokenizer(str(folder))


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

    def stem(self, name: str, scale: str) -> str:
        """What the files of its study at a scale begin with."""
        return name if len(self.scales) == 1 else f"{name}-{scale}"
