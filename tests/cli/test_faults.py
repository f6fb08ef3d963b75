"""Killed at any moment, out of disk, or not allowed to write: what was there stays, and the same command goes on."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kernelformer as kf
from kernelformer.cli import work
from kernelformer.cli.options import ConvertSettings
from kernelformer.cli.work import WorkFolder
from kernelformer.learn.trainer import _last_whole_checkpoint

FAST = ("--batch-size", 8, "--num-features", 16, "--held-out", 20)
CONVERT = ("--distill-steps", 30, "--finetune-steps", 30, "--no-measure", *FAST)
FAULTS = Path(__file__).resolve().parents[2] / "scripts" / "faults.py"


def command(encoder: Path, reviews: Path, out: Path) -> list[Any]:
    return ["convert", encoder, "--data", reviews, "--label-column", "label", "-o", out, *CONVERT]


def is_whole(out: Path) -> bool:
    try:
        kf.load(out)
    except kf.KernelformerError:
        return False
    return True


@pytest.mark.slow
def test_killed_at_random_moments() -> None:
    """A few times; ``python scripts/faults.py`` does it at length."""
    done = subprocess.run([sys.executable, FAULTS, "--kills", "3"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.splitlines()) == 4


def settings(out: Path, **changed: Any) -> Any:
    return ConvertSettings(model="m", data=["d"], output=str(out), **changed)


class _Killed(BaseException):
    """Stands for kill -9 just before a call that changes the disk."""


def _kill_before(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Let the ``call``-th rename, removal or new folder be the last moment."""
    counted = [0]

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            counted[0] += 1
            if counted[0] > call:
                raise _Killed
            return function(*arguments, **named)

        return run

    monkeypatch.setattr(work.os, "replace", watched(os.replace))
    monkeypatch.setattr(work.shutil, "rmtree", watched(work.shutil.rmtree))
    monkeypatch.setattr(Path, "mkdir", watched(Path.mkdir))
    monkeypatch.setattr(Path, "unlink", watched(Path.unlink))


class _Model:
    def __init__(self, text: str) -> None:
        self.text = text

    def save_pretrained(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        for name in ("config.json", "model.safetensors", "report.json"):
            (folder / name).write_text(self.text)


def _convert(out: Path, text: str, *, overwrite: bool = False) -> None:
    folder = WorkFolder(
        settings(out, kernel=text), overwrite=overwrite, read=lambda path: _Model((path / "config.json").read_text())
    )
    model: Any = _Model(text)
    for stage in ("start", "distilled"):
        model, _ = folder.stage(stage, model, dict)
    final = folder.path / "final"
    work.shutil.rmtree(final, ignore_errors=True)
    model.save_pretrained(final)
    folder.finish(final)


def _texts(out: Path) -> set[str]:
    return {(out / name).read_text() for name in ("config.json", "model.safetensors", "report.json")}


@pytest.mark.parametrize("call", range(24))
@pytest.mark.parametrize("overwrite", [False, True])
def test_killed_before_any_change_of_the_disk(tmp_path: Path, call: int, overwrite: bool) -> None:
    """Old files, new files, or no model: never some of each; and the same command then makes the new one."""
    out = tmp_path / "out"
    if overwrite:
        _convert(out, "old")
    with pytest.MonkeyPatch.context() as patch:
        _kill_before(patch, call)
        try:
            _convert(out, "new", overwrite=overwrite)
        except _Killed:
            pass
        except OSError:
            pass
    if (out / "config.json").exists():
        assert len(_texts(out)) == 1
    if not (out / "config.json").exists() or _texts(out) == {"old"} or (out / ".work" / "settings.json").exists():
        _convert(out, "new", overwrite=overwrite)
    assert _texts(out) == {"new"}
    # And whatever is left is no obstacle to another run.
    _convert(out, "another", overwrite=True)
    assert _texts(out) == {"another"}
    assert not (out / ".work").exists()


def test_stages_without_settings_are_not_taken(tmp_path: Path) -> None:
    """They are what a kill left of a folder that was being removed."""
    stale = tmp_path / "out" / ".work" / "start"
    stale.mkdir(parents=True)
    (stale / "config.json").write_text("stale")
    (stale / "stage.json").write_text("{}")
    _convert(tmp_path / "out", "new")
    assert _texts(tmp_path / "out") == {"new"}


def test_a_checkpoint_cut_short_is_not_resumed_from(tmp_path: Path) -> None:
    for step, state in ((200, "{}"), (400, '{"global_st'), (600, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state is not None:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    assert _last_whole_checkpoint(tmp_path) == str(tmp_path / "checkpoint-200")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-200"]
    assert _last_whole_checkpoint(tmp_path / "absent") is None


@pytest.mark.parametrize("size", [2_000, 60_000])
def test_a_full_disk_is_one_line_and_code_1(
    size: int, kernelformer: Any, encoder: Path, reviews: Path, tmp_path: Path, capsys: Any
) -> None:
    """No file may grow beyond ``size`` bytes, as on a disk that is full; afterwards the same command goes on."""
    arguments = command(encoder, reviews, tmp_path / "out")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        assert kernelformer(*arguments) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    told = capsys.readouterr().err.strip()
    assert "File too large" in told or "disk is full" in told
    assert len(told.splitlines()) == 1
    assert not is_whole(tmp_path / "out")
    assert kernelformer(*arguments) == 0
    assert is_whole(tmp_path / "out")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(kernelformer: Any, encoder: Path, reviews: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    assert kernelformer(*command(encoder, reviews, closed / "out")) == 2


def test_an_output_below_a_file(kernelformer: Any, encoder: Path, reviews: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").write_text("mine")
    assert kernelformer(*command(encoder, reviews, tmp_path / "file" / "out")) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"
