"""What a figure was measured with: machine, versions, and names that tell no paths."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from kernelformer import __version__

__all__ = ["environment", "processor", "short_name"]


def environment() -> dict[str, Any]:
    """{"versions": library -> version, "machine": what this runs on, in words}.

    Where kernelformer runs from a checkout, versions hold its "commit", too, with "-dirty" behind it if files differ.
    """
    libraries = ("torch", "transformers", "scikit-learn")
    versions = {"kernelformer": __version__, "python": platform.python_version()}
    commit = _commit()
    return {
        "versions": versions
        | {name: metadata.version(name) for name in libraries}
        | ({} if commit is None else {"commit": commit}),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
    }


def processor(device: str) -> str:
    """Processor, cores, how busy they were at the end, and the CUDA device."""
    name = platform.processor() or platform.machine()
    info = "/proc/cpuinfo"
    if os.path.exists(info):
        with open(info, encoding="utf-8") as lines:
            named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        name = named[0] if named else name
    load = f", load {os.getloadavg()[0]:.1f}" if sys.platform != "win32" else ""
    described = f"{name}, {os.cpu_count()} cores{load}"
    return f"{torch.cuda.get_device_name()}; {described}" if device.startswith("cuda") else described


def short_name(name: str) -> str:
    """A hub name as it is; of a path the last two parts, which tell as much without telling the machine."""
    return "/".join(Path(name).resolve().parts[-2:]) if Path(name).exists() else name


def _commit() -> str | None:
    here = Path(__file__)

    def git(*arguments: str) -> str | None:
        done = subprocess.run(["git", *arguments], cwd=here.parent, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    # An environment may lie within somebody's repository; only one that holds this file is ours.
    if shutil.which("git") is None or git("ls-files", "--error-unmatch", here.name) is None:
        return None
    return git("describe", "--always", "--dirty", "--exclude=*")
