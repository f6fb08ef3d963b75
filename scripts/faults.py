"""kill -9 at random moments: ``python scripts/faults.py [VERB ...] --kills 20``.

Every verb runs on a tiny encoder in a child process that is killed again and again, at a random moment of what is left
to do, until one comes through; its result must be that of an unbroken run, to the bit. After every kill, what is in the
output folder must be refused or be whole. Children are forked, so that the time of imports is not in the way.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import io
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

import kernelformer as kf
from kernelformer.cli import main

WORDS = ("a", "film", "bad", "good", "dull", "fine", "plot", "the", "actor", "scene", "long", "short")
VERBS = ("convert", "align", "train", "reproduce")


def prepare(folder: Path) -> tuple[Path, Path]:
    """A tiny encoder with its tokenizer, and 120 labelled texts."""
    encoder, reviews = folder / "encoder", folder / "reviews.jsonl"
    encoder.mkdir()
    (encoder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    tokenizer = transformers.BertTokenizer(str(encoder / "vocab.txt"))
    tokenizer.save_pretrained(encoder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
        max_position_embeddings=32, initializer_range=0.2,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(encoder)
    drawn = random.Random(0)
    rows = [
        {"text": " ".join(drawn.choices(WORDS, k=9)) + (" good" if row % 2 else " bad"), "label": str(row % 2)}
        for row in range(120)
    ]
    reviews.write_text("\n".join(map(json.dumps, rows)))
    return encoder, reviews


def words(verb: str, encoder: Path, reviews: Path, out: Path) -> list[str]:
    """The command line of ``verb``, a few seconds of work."""
    fast = ("--data", reviews, "--label-column", "label", "--batch-size", 8, "--held-out", 20, "-o", out)
    given: dict[str, tuple[Any, ...]] = {
        "convert": ("convert", encoder, *fast, "--distill-steps", 250, "--finetune-steps", 250, "--no-measure"),
        "align": ("align", encoder, *fast, "--steps", 300, "--num-features", 8),
        "train": ("train", encoder, *fast, "--epochs", 20, "--kernel", "favor", "--num-features", 16),
        "reproduce": ("reproduce", "anisotropy", "--seeds", 2, "-o", out),
    }
    return ["kernelformer", *map(str, given[verb])]


def start(command: list[str]) -> int:
    """Fork a child that runs it; its process id."""
    child = os.fork()
    if child:
        return child
    sys.argv = command
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException as error:
            told.write(repr(error))
            code = 70
    if code:
        sys.__stderr__.write(told.getvalue()[-2000:])  # type: ignore[union-attr]
        sys.__stderr__.flush()  # type: ignore[union-attr]
    os._exit(code)


def wait(child: int, seconds: float | None) -> int | None:
    """The child's exit code; None if it was killed after ``seconds``."""
    end = None if seconds is None else time.perf_counter() + seconds
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if end is not None and time.perf_counter() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.002)


def is_whole(verb: str, out: Path) -> bool:
    """Whether what is there passes for finished; then it must be."""
    if verb == "reproduce":
        files = list(out.glob("*.json"))
        return bool(files) and all(json.loads(file.read_text()) is not None for file in files)
    try:
        kf.load(out)
    except kf.KernelformerError:
        return False
    assert {"report.json", "tokenizer.json", "model.safetensors"} <= {file.name for file in out.iterdir()}, out
    return True


def digest(verb: str, out: Path) -> str:
    """Of the weights, or of a study's results."""
    if verb == "reproduce":
        return hashlib.sha256((out / "anisotropy.json").read_bytes()).hexdigest()
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


def batter(command: Callable[[Path], list[str]], verb: str, folder: Path, kills: int) -> tuple[int, int]:
    """Kill until ``kills`` children have died; how often a run came through, and how often unfinished work was there.

    Raises:
        AssertionError: a result differs from that of an unbroken run, or half a folder passes for a whole one.
    """
    begin = time.perf_counter()
    assert wait(start(command(folder / "whole")), None) == 0
    whole = time.perf_counter() - begin
    wanted = digest(verb, folder / "whole")
    moments, died, through, unfinished = random.Random(verb), 0, 0, 0
    while died < kills or through == 0:
        out = folder / f"killed{through}"
        code = wait(start(command(out)), whole * moments.uniform(0.02, 1.0) if died < kills else None)
        if code is None:
            died += 1
            unfinished += not is_whole(verb, out)
            continue
        # A kill between the last file and the exit leaves a finished run, which is refused without --overwrite.
        assert code == 0 or (code == 2 and verb != "reproduce" and is_whole(verb, out)), code
        assert digest(verb, out) == wanted, f"{verb}: another result after kills"
        through += 1
    return through, unfinished


def run() -> None:
    """Batter the verbs that are named, or all, and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verbs", nargs="*", default=VERBS)
    parser.add_argument("--kills", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        encoder, reviews = prepare(Path(place))
        for verb in arguments.verbs:
            folder = Path(place) / verb
            folder.mkdir()
            command = functools.partial(words, verb, encoder, reviews)
            through, unfinished = batter(command, verb, folder, arguments.kills)
            print(f"{verb}: killed {arguments.kills} times, {unfinished} with work unfinished; "
                  f"{through} runs came through, each with the bits of an unbroken one", flush=True)  # fmt: skip


if __name__ == "__main__":
    run()
