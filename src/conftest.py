"""Doctests of what can be imported here."""

from __future__ import annotations

import importlib.util

# The files of a backend, by the library that they import.
BACKENDS = {"triton": "kernelformer/engine/triton_*.py"}

collect_ignore_glob = [files for library, files in BACKENDS.items() if importlib.util.find_spec(library) is None]
