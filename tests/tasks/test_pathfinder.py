"""Pictures hold what their label says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from kernelformer.tasks import pathfinder
from kernelformer.tasks.pathfinder import SIDE, draw_pathfinder, draw_picture


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
