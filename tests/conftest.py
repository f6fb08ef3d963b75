"""One thread, so that times and sums do not depend on the machine."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
