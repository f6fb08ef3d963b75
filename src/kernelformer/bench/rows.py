"""Measured rows on disk, so that a study that was interrupted goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernelformer.bench.clock import TimeLeft
from kernelformer.errors import KernelformerError
from kernelformer.learn import tensorboard

__all__ = ["Rows"]


class Rows:
    """The rows of one study, JSON objects, one a line behind a first line of settings, each written when it is done.

    Args:
        path: of the file, usually ``folder / "NAME.rows.jsonl"``; begun if it is not there.
        settings: all that decides a row besides its key, JSON values.
        events: where the loss curves of a row's trainings go for TensorBoard, in a folder of its key; None writes none.

    Raises:
        KernelformerError: the file is of other settings.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "study.rows.jsonl"
        >>> Rows(path, {"seeds": 3}).get("favor, 0", lambda: {"accuracy": 0.5})
        {'accuracy': 0.5}
        >>> Rows(path, {"seeds": 3}).get("favor, 0", lambda: {"accuracy": 0.9})  # read, not measured again
        {'accuracy': 0.5}
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], events: Path | None = None) -> None:
        self.path = path
        self.events = events
        self._rows: dict[str, dict[str, Any]] = {}
        wanted = json.loads(json.dumps(dict(settings)))
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        if lines and not lines[-1].endswith(b"\n"):  # the line that was being written
            lines.pop()
            path.write_bytes(b"".join(lines))
        if not lines:
            path.write_text(json.dumps(wanted) + "\n", encoding="utf-8")
        elif json.loads(lines[0]) != wanted:
            raise KernelformerError(
                f"{path} holds an interrupted study with other settings: repeat those to resume it, choose another "
                f"output folder, or remove the file. They were {lines[0].decode().strip()}"
            )
        for line in lines[1:]:
            self._rows.update(json.loads(line))

    def get(self, key: str, measure: Callable[[], Mapping[str, Any]]) -> Any:
        """The row of ``key``, measured if it was not before."""
        if key not in self._rows:
            with tensorboard(None if self.events is None else self.events / key):
                self._rows[key] = dict(measure())
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({key: self._rows[key]}) + "\n")
        return self._rows[key]

    def get_all(
        self, wanted: Mapping[str, Callable[[], Mapping[str, Any]]], say: Callable[[str], None] = lambda _: None
    ) -> dict[str, Any]:
        """The rows of all keys, in their order; ``say`` is told each that is measured, and about how long is left."""
        missing = [key for key in wanted if key not in self._rows]
        left = TimeLeft(len(missing))
        for number, key in enumerate(missing, len(wanted) - len(missing) + 1):
            say(f"[{number}/{len(wanted)}] {key}{left}")
            self.get(key, wanted[key])
            left.done()
        return {key: self._rows[key] for key in wanted}

    def finish(self) -> None:
        """Forget the file: the study is whole and its result written."""
        self.path.unlink()
