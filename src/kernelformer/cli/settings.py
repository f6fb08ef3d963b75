"""The options of conversion, alignment and training, and the folder that a run works in."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from kernelformer.errors import KernelformerError
from kernelformer.hf import load
from kernelformer.tasks.files import write_json
from kernelformer.tasks.text import Corpus, load_texts

__all__ = ["ClassifierSettings", "ConvertSettings", "WorkFolder", "held_out_texts", "read_texts"]


@dataclass(frozen=True)
class ConvertSettings:
    """Everything that decides the result of a conversion; see ``kernelformer convert --help`` for each."""

    model: str
    data: list[str]
    output: str
    kernel: str = "hedgehog"
    num_features: int | None = 64
    options: dict[str, Any] = field(default_factory=dict)
    layers: list[int] | None = None
    window: int = 0
    test_data: list[str] = field(default_factory=list)
    text_column: str = "text"
    label_column: str | None = None
    group_column: str | None = None
    keep_labels: list[str] | None = None
    held_out: int | None = None
    max_length: int = 128
    finetune: str = "all"
    distill_steps: int = 150
    finetune_steps: int = 1000
    batch_size: int = 32
    learning_rate: float = 3e-4
    kernel_learning_rate: float | None = None
    precision: str = "auto"
    seed: int = 0
    measure: bool = True


@dataclass(frozen=True)
class ClassifierSettings:
    """Everything that decides what ``align`` or ``train`` makes; see their ``--help``. ``verb`` says which."""

    verb: str
    model: str
    data: list[str]
    output: str
    label_column: str
    config: str | None = None
    kernel: str | None = None
    num_features: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    layers: list[int] | None = None
    shared_qk: bool = False
    text_column: str = "text"
    group_column: str | None = None
    keep_labels: list[str] | None = None
    held_out: int | None = None
    max_length: int = 128
    batch_size: int = 64
    seed: int = 0
    steps: int = 300
    level: str = "sequence"
    normalised: bool = True
    also: str = "nothing"
    step_size: float = 10.0
    inverse_temperature: float = 1e6
    exponent: float = 0.0
    repulsion_weight: float = 1e-3
    max_norm: float = 12.0
    max_drift: float = 0.1
    tolerance: float = 0.0
    epochs: int = 3
    learning_rate: float = 1e-3
    train_kernels: bool = False
    kernel_learning_rate: float = 1e-2
    precision: str = "auto"


def read_texts(settings: ConvertSettings | ClassifierSettings, sources: Sequence[str], *, min_rows: int = 1) -> Corpus:
    """The texts of ``sources``, with the columns and labels that the settings name."""
    return load_texts(
        sources,
        text_column=settings.text_column,
        label_column=settings.label_column,
        group_column=settings.group_column,
        keep_labels=settings.keep_labels,
        min_rows=min_rows,
    )


def held_out_texts(settings: ConvertSettings | ClassifierSettings, corpus: Corpus) -> int:
    """How many texts to hold out: as the settings say, else a tenth, at most 1,000."""
    return max(2, min(1000, len(corpus) // 10)) if settings.held_out is None else settings.held_out


class WorkFolder:
    """OUT/.work: where an interrupted run left its finished stages; gone when the conversion is whole.

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
        settings: ConvertSettings | ClassifierSettings,
        *,
        overwrite: bool,
        read: Callable[[Path], PreTrainedModel] | None = None,
    ) -> None:
        self.output = Path(settings.output)
        self.path = self.output / ".work"
        own_kernel = settings.kernel if settings.kernel is not None and ":" in settings.kernel else None
        self._read = partial(load, own_kernel=own_kernel) if read is None else read
        wanted = json.loads(json.dumps(asdict(settings)))
        kept = self.path / "settings.json"
        if kept.is_file():
            self._check_same(json.loads(kept.read_text(encoding="utf-8")), wanted)
        else:
            self._check_free(overwrite)
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(kept, wanted)

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
        """Move the files of ``final`` to the output folder, then forget the work."""
        for file in sorted(final.iterdir()):
            os.replace(file, self.output / file.name)
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
        if not self.output.is_dir() or not any(self.output.iterdir()):
            return
        ours = (self.output / "report.json").is_file() and (self.output / "model.safetensors").is_file()
        if not ours:
            raise KernelformerError(f"the output folder {self.output} holds something else: choose an empty one")
        if not overwrite:
            raise KernelformerError(f"{self.output} holds a finished run: choose another folder, or give --overwrite")
