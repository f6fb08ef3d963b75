"""What docs/security.md promises of the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "kernelformer"
FILES = sorted(SOURCE.rglob("*.py"))

FORBIDDEN_NAMES = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
FORBIDDEN_CALLS = {"os.system", "os.popen", "yaml.load", "numpy.load", "np.load", "torch.hub.load"}


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def problems(source: str) -> list[str]:
    tree, found = ast.parse(source), []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        found += [f"imports {name}" for name in names if name.partition(".")[0] in FORBIDDEN_MODULES]
    for name, call in calls(tree):
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        if name in FORBIDDEN_NAMES | FORBIDDEN_CALLS:
            found.append(f"calls {name}")
        if name == "torch.load" and given.get("weights_only") != "True":
            found.append("torch.load without weights_only=True")
        if given.get("shell") not in (None, "False"):
            found.append("a shell")
        if given.get("trust_remote_code") not in (None, "False"):
            found.append("trust_remote_code")
        if name.startswith("Auto") and name.endswith("from_pretrained") and "trust_remote_code" not in given:
            found.append(f"{name} without trust_remote_code=False")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_nothing_of_the_kind(path: Path) -> None:
    assert problems(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "eval('1')",
        "import pickle",
        "from pickle import loads",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "subprocess.run(x, shell=True)",
        "AutoModel.from_pretrained(x)",
        "AutoModel.from_pretrained(x, trust_remote_code=True)",
        "yaml.load(x)",
        "os.system(x)",
    ],
)
def test_the_scan_finds_it(source: str) -> None:
    assert problems(source)
