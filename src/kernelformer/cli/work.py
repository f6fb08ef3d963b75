"""The texts that a run reads, and the folder that it works in."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from kernelformer.cli.options import TextSettings
from kernelformer.errors import KernelformerError
from kernelformer.hf import load
from kernelformer.hf.record import check_seed
from kernelformer.tasks.files import write_json
from kernelformer.tasks.text import Corpus, load_texts

__all__ = ["WorkFolder", "check_data", "check_numbers", "held_out_texts", "read_texts"]


def read_texts(
    settings: TextSettings, sources: Sequence[str], *, min_rows: int = 1, pair_column: str | None = None
) -> Corpus:
    """The texts of ``sources``, with the columns and labels that the settings name."""
    check_data(sources)
    return load_texts(
        sources,
        text_column=settings.text_column,
        pair_column=pair_column,
        label_column=settings.label_column,
        group_column=settings.group_column,
        keep_labels=settings.keep_labels or None,
        min_rows=min_rows,
    )


def check_data(sources: Sequence[str]) -> None:
    """Check that there is a text to read.

    Raises:
        KernelformerError: there is none.
    """
    if not sources:
        raise KernelformerError("there is no text: give --data FILE (.txt, .jsonl, .csv or .tsv), or a data set's name")


def check_numbers(seed: int, *rates: float | None) -> None:
    """Check a seed, and rates of learning; None is a rate that others choose.

    Raises:
        KernelformerError: one is out of its range.
    """
    check_seed(seed)
    for rate in rates:
        if rate is not None and not 0 <= rate < math.inf:
            raise KernelformerError(f"a learning rate must be a finite number from 0, got {rate}")


def held_out_texts(settings: TextSettings, corpus: Corpus) -> int:
    """How many texts to hold out: as the settings say, else a tenth, at most 1,000."""
    return max(2, min(1000, len(corpus) // 10)) if settings.held_out is None else settings.held_out


_NO_MATTER = ("measure", "tensorboard")
"""Settings that change no weight, so that a run may go on with others."""


class WorkFolder:
    """OUT/.work: where an interrupted run left its finished stages; gone when the run is whole.

    Args:
        settings: of the run; its output folder is created.
        overwrite: replace a finished run that is there.
        read: a model that a stage left; None is ``kernelformer.load``.

    Raises:
        KernelformerError: the output folder holds something else, a finished run, or an interrupted run with
            other settings.
    """

    def __init__(
        self,
        settings: TextSettings,
        *,
        overwrite: bool,
        read: Callable[[Path], PreTrainedModel] | None = None,
    ) -> None:
        self.output = Path(settings.output)
        self.path = self.output / ".work"
        self._read = partial(load, own_kernel=settings.own_kernel) if read is None else read
        wanted = json.loads(json.dumps(asdict(settings)))
        for name in _NO_MATTER:
            wanted.pop(name, None)
        kept = self.path / "settings.json"
        if kept.is_file():
            self._check_same(json.loads(kept.read_text(encoding="utf-8")), wanted)
        else:
            self._check_free(overwrite)
            # What is there without settings was being begun, or forgotten: its stages are of who knows what.
            shutil.rmtree(self.path, ignore_errors=True)
            self._begin(kept, wanted)

    def _begin(self, kept: Path, wanted: dict[str, Any]) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(kept, wanted)
        except OSError as error:
            raise KernelformerError(
                f"the output folder {self.output} cannot be written ({error.strerror}): choose another"
            ) from error

    def stage(
        self, name: str, model: PreTrainedModel, run: Callable[[], dict[str, Any]]
    ) -> tuple[PreTrainedModel, dict[str, Any]]:
        """Run a stage that changes ``model`` and returns facts about it; or, if it was done before, read both back."""
        folder = self.path / name
        if folder.is_dir():
            return self._read(folder), json.loads((folder / "stage.json").read_text(encoding="utf-8"))
        facts = run()
        partial = self.path / f"{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        model.save_pretrained(partial)
        write_json(partial / "stage.json", facts)
        os.replace(partial, folder)
        shutil.rmtree(self.checkpoints(name), ignore_errors=True)
        return model, facts

    def checkpoints(self, name: str) -> Path:
        """Where the training of a stage keeps its checkpoints."""
        return self.path / f"{name}.checkpoints"

    def finish(self, final: Path) -> None:
        """Move the files of ``final`` to the output folder, then forget the work.

        Without config.json nothing reads a folder, so it goes first and comes last: at no moment are old and new files
        together a model.
        """
        (self.output / "config.json").unlink(missing_ok=True)
        for file in sorted(final.iterdir(), key=lambda file: (file.name == "config.json", file.name)):
            os.replace(file, self.output / file.name)
        # First, so that what a kill leaves of the rest is no interrupted run.
        (self.path / "settings.json").unlink()
        shutil.rmtree(self.path)

    def _check_same(self, before: dict[str, Any], wanted: dict[str, Any]) -> None:
        differing = sorted(name for name in wanted if before.get(name) != wanted[name])
        if differing:
            was = ", ".join(f"{name}={before.get(name)!r}" for name in differing)
            raise KernelformerError(
                f"{self.output} holds an interrupted run with other settings ({was}): repeat those to resume it, "
                f"choose another output folder, or remove {self.path}"
            )

    def _check_free(self, overwrite: bool) -> None:
        if self.output.exists() and not self.output.is_dir():
            raise KernelformerError(f"the output folder {self.output} is a file: choose another")
        if not self.output.is_dir() or not any(entry != self.path for entry in self.output.iterdir()):
            return
        ours = all((self.output / name).is_file() for name in ("config.json", "report.json", "model.safetensors"))
        if not ours:
            raise KernelformerError(f"the output folder {self.output} holds something else: choose an empty one")
        if not overwrite:
            raise KernelformerError(f"{self.output} holds a finished run: choose another folder, or give --overwrite")
