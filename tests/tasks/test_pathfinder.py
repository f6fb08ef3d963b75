"""Pictures hold what their label says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from kernelformer.tasks import pathfinder
from kernelformer.tasks.pathfinder import SIDE, draw_pathfinder, draw_picture


def test_a_task_is_balanced_and_repeats_by_seed():
    task, again = (draw_pathfinder((10, 4, 4), 3) for _ in range(2))
    assert task == again
    assert [sum(part.labels) for part in task[:3]] == [5, 2, 2]
    assert {len(pixels) for part in task[:3] for pixels in part.inputs} == {SIDE * SIDE}
    assert min(map(min, task.train.inputs)) == 1 and max(map(max, task.train.inputs)) == 256


@pytest.mark.parametrize("connected", [True, False])
def test_two_discs(connected):
    random = np.random.default_rng(0)
    for _ in range(5):
        # Paths are dimmer than discs.
        assert ndimage.label(draw_picture(connected, random) > 200)[1] == 2


@pytest.mark.parametrize("connected", [True, False])
def test_discs_lie_on_one_path_or_on_two(connected, monkeypatch):
    """Long paths, drawn without gaps and without distractors, are connected pieces."""
    monkeypatch.setattr(pathfinder, "_GAP", 0.0)
    monkeypatch.setattr(pathfinder, "_DISTRACTORS", 0)
    monkeypatch.setattr(pathfinder, "_CLEARANCE", 4.0)
    monkeypatch.setattr(pathfinder, "_DASHES", 8)
    random = np.random.default_rng(1)
    for _ in range(5):
        picture = draw_picture(connected, random)
        pieces, count = ndimage.label(picture > 0, structure=np.ones((3, 3)))
        of_discs = set(pieces[picture > 200].tolist())
        assert count == 2
        assert len(of_discs) == (1 if connected else 2)
