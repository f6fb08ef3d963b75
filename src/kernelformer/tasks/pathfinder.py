"""Pathfinder: are two marked points the ends of one dashed path? Official files, or a generator of our own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelformer.errors import DataError
from kernelformer.tasks.sequences import Sequences, SequenceTask

__all__ = ["SIDE", "draw_pathfinder", "draw_picture", "read_pathfinder"]

SIDE: Final = 32

# The settings that the Long Range Arena gave the original's program for its hard pictures of side 32.
_DASHES, _DISTRACTOR_DASHES, _DISTRACTORS = 14, 4, 5
_DASH, _GAP, _EDGE, _MARKER = 2.0, 1.0, 1.0, 1.5
_PATH_BRIGHTNESS, _MARKER_BRIGHTNESS = 0.75, 1.0

# Ours, since the geometry of the program is not copied.
_HALF_WIDTH: Final = 0.25
_CLEARANCE: Final = 2.2
_LARGEST_TURN: Final = 0.6
_TRIES: Final = 8

_Points = NDArray[np.float64]


class _Dashes(NamedTuple):
    """Starts and ends of dashes, [n, 2] each."""

    starts: _Points
    ends: _Points


def draw_pathfinder(sizes: tuple[int, int, int], seed: int) -> SequenceTask:
    """Pictures as rows of pixels, 1,024 tokens (brightness 0 to 255, plus 1), half of each part of class 1.

    Args:
        sizes: pictures to train, validate and test on; 160,000, 20,000 and 20,000 in the Long Range Arena.

    References:
        Linsley et al. 2018, arXiv 1805.08315; Tay et al. 2021, arXiv 2011.04006.
    """
    parts = []
    for part, size in enumerate(sizes):
        random = np.random.default_rng([seed, part])
        labels = random.permutation(np.arange(size) % 2)
        pixels = [draw_picture(bool(label), random) for label in labels]
        parts.append(Sequences([(picture.ravel().astype(int) + 1).tolist() for picture in pixels], labels.tolist()))
    return SequenceTask.of(parts, vocabulary=257, classes=2, max_length=SIDE * SIDE)


def read_pathfinder(folder: str | Path) -> SequenceTask:
    """The official pictures: ``folder`` holds metadata/*.npy, lines of text, and the pictures that these name.

    That is lra_release/pathfinder32/curv_contour_length_14 for the arena's hard pictures. In the order of the files,
    eight tenths train, one validates, one tests.

    Raises:
        DataError: no metadata, a line or picture of another form, fewer than ten pictures.
    """
    folder = Path(folder)
    files = sorted((folder / "metadata").glob("*.npy"), key=lambda file: (len(file.name), file.name))
    found = [example for file in files for example in _described(folder, file)]
    if len(found) < 10:
        raise DataError(f"{folder / 'metadata'}: ten pictures are needed at least, its *.npy files name {len(found)}")
    cuts = (0, len(found) * 8 // 10, len(found) * 9 // 10, len(found))
    parts = [found[start:end] for start, end in itertools.pairwise(cuts)]
    return SequenceTask.of(
        (Sequences([_pixels(path) for path, _ in part], [label for _, label in part]) for part in parts),
        vocabulary=257,
        classes=2,
        max_length=SIDE * SIDE,
    )


def _described(folder: Path, file: Path) -> Iterator[tuple[Path, int]]:
    """Picture and class of each line: folder, name, number, class, and how it was drawn."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as text: {error}") from error
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if len(fields) < 4 or fields[3] not in ("0", "1"):
            raise DataError(
                f"{file}, line {number}: folder, name, number and class 0 or 1 are needed, got {line[:80]!r}"
            )
        yield folder / fields[0] / fields[1], int(fields[3])


def _pixels(path: Path) -> list[int]:
    from PIL import Image

    try:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("L"))
    except OSError as error:
        raise DataError(f"{path} is no picture: {error}") from error
    if pixels.shape != (SIDE, SIDE):
        raise DataError(f"{path} must be {SIDE} pixels wide and high, got {pixels.shape[1]} × {pixels.shape[0]}")
    tokens: list[int] = (pixels.ravel().astype(int) + 1).tolist()
    return tokens


def draw_picture(connected: bool, random: np.random.Generator) -> NDArray[np.uint8]:
    """One picture, uint8 [32, 32]: two long dashed paths, five short ones, and two discs.

    The discs lie at both ends of one long path if ``connected``, else each at an end of another.
    """
    while True:
        first = _grow(_DASHES, np.empty((0, 2)), random)
        second = None if first is None else _grow(_DASHES, _points(first), random)
        if first is None or second is None:
            continue
        if connected:
            markers = [first.starts[0], first.ends[-1]]
        else:
            markers = [first.starts[0], (second.starts[0], second.ends[-1])[random.integers(2)]]
        # Discs that touch would be told apart by no one.
        if math.dist(markers[0], markers[1]) >= 4 * _MARKER:
            break
    paths = [first, second]
    for _ in range(_DISTRACTORS):
        more = _grow(_DISTRACTOR_DASHES, np.concatenate([_points(path) for path in paths]), random)
        if more is not None:
            paths.append(more)
    return _render(paths, np.array(markers))


def _grow(dashes: int, taken: _Points, random: np.random.Generator) -> _Dashes | None:
    """A path that keeps clear of ``taken`` points and of itself; None if none was found in a few starts."""
    for _ in range(_TRIES):
        at, angle = random.uniform(_EDGE, SIDE - 1 - _EDGE, 2), random.uniform(0, 2 * math.pi)
        starts: list[_Points] = []
        ends: list[_Points] = []
        while len(starts) < dashes:
            dash = _next_dash(at, angle, starts, ends, taken, random)
            if dash is None:
                break
            start, end, angle = dash
            starts.append(start)
            ends.append(end)
            at = end
        if len(starts) == dashes:
            return _Dashes(np.array(starts), np.array(ends))
    return None


def _next_dash(
    at: _Points, angle: float, starts: list[_Points], ends: list[_Points], taken: _Points, random: np.random.Generator
) -> tuple[_Points, _Points, float] | None:
    # Its own last two dashes are near by nature.
    own = [*starts[:-2], *ends[:-2]]
    others = np.concatenate([taken, np.array(own)]) if own else taken
    for _ in range(_TRIES):
        turned = angle + (random.uniform(-_LARGEST_TURN, _LARGEST_TURN) if starts else 0.0)
        along = np.array([math.cos(turned), math.sin(turned)])
        start = at + (_GAP if starts else 0.0) * along
        end = start + _DASH * along
        new = np.array([start, (start + end) / 2, end])
        inside = bool(((new >= _EDGE) & (new <= SIDE - 1 - _EDGE)).all())
        if inside and (len(others) == 0 or np.linalg.norm(new[:, None] - others, axis=-1).min() >= _CLEARANCE):
            return start, end, turned
    return None


def _points(path: _Dashes) -> _Points:
    return np.concatenate([path.starts, (path.starts + path.ends) / 2, path.ends])


def _render(paths: list[_Dashes], markers: _Points) -> NDArray[np.uint8]:
    """Brightness falls from 1 to 0 within a pixel of the edge of a dash or disc."""
    grid = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij"), axis=-1).astype(float)
    starts, ends = (np.concatenate(side) for side in zip(*paths, strict=True))
    along = ends - starts
    share = ((grid[:, :, None] - starts) * along).sum(-1) / (along**2).sum(-1)
    nearest = starts + share.clip(0, 1)[..., None] * along
    distance = np.linalg.norm(grid[:, :, None] - nearest, axis=-1).min(-1)
    picture = _PATH_BRIGHTNESS * (_HALF_WIDTH + 0.5 - distance).clip(0, 1)
    to_marker = np.linalg.norm(grid[:, :, None] - markers, axis=-1).min(-1)
    picture = np.maximum(picture, _MARKER_BRIGHTNESS * (_MARKER + 0.5 - to_marker).clip(0, 1))
    pixels: NDArray[np.uint8] = np.rint(255 * picture).astype(np.uint8)
    return pixels
