"""Pictures hold what their label says."""

from __future__ import annotations

import numpy as np
import PIL.Image
import pytest
from scipy import ndimage

from kernelformer.errors import DataError
from kernelformer.tasks import pathfinder
from kernelformer.tasks.pathfinder import SIDE, draw_pathfinder, draw_picture, read_pathfinder


def test_a_task_is_balanced_and_repeats_by_seed():
    task, again = (draw_pathfinder((4, 2, 2), 3) for _ in range(2))
    assert task == again
    assert [sum(part.labels) for part in task[:3]] == [2, 1, 1]
    assert {len(pixels) for part in task[:3] for pixels in part.inputs} == {SIDE * SIDE}
    assert min(map(min, task.train.inputs)) == 1 and max(map(max, task.train.inputs)) == 256


@pytest.mark.parametrize("connected", [True, False])
def test_two_discs(connected):
    random = np.random.default_rng(0)
    for _ in range(3):
        # Paths are dimmer than discs.
        assert ndimage.label(draw_picture(connected, random) > 200)[1] == 2


@pytest.mark.parametrize("connected", [True, False])
def test_discs_lie_at_ends_of_one_path_or_of_two(connected, monkeypatch):
    monkeypatch.setattr(pathfinder, "_render", lambda paths, markers: (paths, markers))
    (first, second, *rest), (here, there) = draw_picture(connected, np.random.default_rng(1))
    assert [len(path.starts) for path in (first, second)] == [14, 14] and all(len(path.starts) == 4 for path in rest)
    assert (here == first.starts[0]).all()
    ends = [first.ends[-1]] if connected else [second.starts[0], second.ends[-1]]
    assert any((there == end).all() for end in ends)


def test_paths_keep_clear_of_each_other_and_are_seen(monkeypatch):
    drawn = []
    render = pathfinder._render
    monkeypatch.setattr(pathfinder, "_render", lambda *what: drawn.append(what[0]) or render(*what))
    picture = draw_picture(True, np.random.default_rng(2))
    points = [pathfinder._points(path) for path in drawn[0]]
    for index, some in enumerate(points):
        others = np.concatenate(points[:index] + points[index + 1 :])
        assert np.linalg.norm(some[:, None] - others, axis=-1).min() >= 2.2
        middles = np.rint(some[len(some) // 3 : 2 * len(some) // 3]).astype(int)
        assert (picture[tuple(middles.T)] > 0).mean() > 0.8


@pytest.fixture
def official(tmp_path):
    """Twenty pictures in the form of the arena's files."""
    random = np.random.default_rng(0)
    (tmp_path / "metadata").mkdir()
    for part in (2, 10):  # by number, not by name
        (tmp_path / "imgs" / str(part)).mkdir(parents=True)
        lines = []
        for number in range(10):
            picture = PIL.Image.fromarray(np.full((SIDE, SIDE), 20 * (part == 10) + number, np.uint8))
            picture.save(tmp_path / "imgs" / str(part) / f"sample_{number}.png")
            lines.append(f"imgs/{part} sample_{number}.png {number} {random.integers(2)} 0.5 2 1.5")
        (tmp_path / "metadata" / f"{part}.npy").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_official_files(official):
    task = read_pathfinder(official)
    assert [len(part.labels) for part in task[:3]] == [16, 2, 2]
    assert [pixels[0] - 1 for part in task[:3] for pixels in part.inputs] == [*range(10), *range(20, 30)]
    lines = [line for part in (2, 10) for line in (official / "metadata" / f"{part}.npy").read_text().splitlines()]
    assert [label for part in task[:3] for label in part.labels] == [int(line.split()[3]) for line in lines]


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("metadata/2.npy", b"imgs/2 sample_0.png 0 7\n", "line 1.* class 0 or 1"),
        ("metadata/2.npy", b"\x93NUMPY\xff", "cannot be read as text"),
        ("imgs/10/sample_3.png", b"", "sample_3.png is no picture"),
    ],
)
def test_official_files_that_are_broken(official, file, content, told):
    (official / file).write_bytes(content)
    with pytest.raises(DataError, match=told):
        read_pathfinder(official)


def test_pictures_of_another_size_or_none(official):
    PIL.Image.new("L", (64, 32)).save(official / "imgs/2/sample_1.png")
    with pytest.raises(DataError, match="32 pixels wide and high, got 64 × 32"):
        read_pathfinder(official)
    with pytest.raises(DataError, match="ten pictures"):
        read_pathfinder(official / "imgs")
