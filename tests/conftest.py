"""One thread, so that times and sums do not depend on the machine; Triton's interpreter where there is no device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(1)
if not torch.cuda.is_available():
    # Read once, when Triton is first imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")

_RANK = """
import json, os, sys
import torch, torch.distributed as dist
torch.set_num_threads(1)
rank, world = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=rank, world_size=world)
found = {}
"""
_END = """
with open(f"{sys.argv[3]}.{rank}", "w") as file:
    json.dump(found, file)
dist.destroy_process_group()
"""


@pytest.fixture
def run_ranks(tmp_path: Path) -> Callable[[str, int], list[dict[str, Any]]]:
    """Run a script in several gloo processes, with ``rank``, ``world`` and ``dist``; what each put in ``found``."""

    def run(script: str, world: int) -> list[dict[str, Any]]:
        meeting, code = tmp_path / f"meeting{world}", _RANK + script + _END
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(rank), str(world), str(meeting)],
                env=environment,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(world)
        ]
        try:
            errors = [rank.communicate(timeout=300)[1] for rank in ranks]
        finally:
            for process in ranks:
                process.kill()
        assert [process.returncode for process in ranks] == [0] * world, "\n".join(errors)[-3000:]
        return [json.loads(Path(f"{meeting}.{rank}").read_text(encoding="utf-8")) for rank in range(world)]

    return run
