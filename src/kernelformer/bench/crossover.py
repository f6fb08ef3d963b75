"""From which length on one method is faster than another, by times at some lengths."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["measured_crossover"]


def measured_crossover(points: Sequence[tuple[int, float, float]]) -> float | None:
    """The length from which ours is faster, at that and at every longer length measured.

    Between two measured lengths it is interpolated, straight in log N and log of the ratio of times. If ours
    wins throughout it is the shortest length measured; None where the other wins at the longest.

    Args:
        points: (length, time of the other, time of ours).
    """
    rows = sorted(points)
    leads = [math.log(theirs / ours) for _, theirs, ours in rows]
    losses = [index for index, lead in enumerate(leads) if lead <= 0]
    if not losses:
        return float(rows[0][0]) if rows else None
    last = losses[-1]
    if last == len(rows) - 1:
        return None
    here, there = (math.log(rows[index][0]) for index in (last, last + 1))
    share = -leads[last] / (leads[last + 1] - leads[last])
    return math.exp(here + share * (there - here))
