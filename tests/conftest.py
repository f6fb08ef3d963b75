"""One thread, so that times and sums do not depend on the machine; Triton's interpreter where there is no device."""

from __future__ import annotations

import os

import torch

torch.set_num_threads(1)
if not torch.cuda.is_available():
    # Read once, when Triton is first imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")
