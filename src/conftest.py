"""Doctests of what can be imported here."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["kernelformer/engine/triton_*.py"]
