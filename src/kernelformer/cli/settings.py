"""The options of a conversion, and the folder that a run works in."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from kernelformer.errors import KernelformerError
from kernelformer.hf import load
from kernelformer.tasks.files import write_json

__all__ = ["ConvertSettings", "WorkFolder"]


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


class WorkFolder:
    """OUT/.work: where an interrupted run left its finished stages; gone when the conversion is whole.

    Args:
        settings: of the run; its output folder is created.
        overwrite: replace a finished conversion that is there.

    Raises:
        KernelformerError: the output folder holds something else, a finished conversion, or an interrupted run with
            other settings.
    """

    def __init__(self, settings: ConvertSettings, *, overwrite: bool) -> None:
        self.output = Path(settings.output)
        self.path = self.output / ".work"
        self.own_kernel = settings.kernel if ":" in settings.kernel else None
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
            return load(folder, own_kernel=self.own_kernel), json.loads(
                (folder / "stage.json").read_text(encoding="utf-8")
            )
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
            raise KernelformerError(
                f"{self.output} holds a finished conversion: choose another folder, or give --overwrite"
            )
