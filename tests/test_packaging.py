"""The wheel holds what it should, and the core needs torch alone."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

import kernelformer

ROOT = Path(__file__).resolve().parent.parent

IMPORT_WITHOUT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused!r}:
            raise ModuleNotFoundError(f"{{name}} is not installed", name=name)

sys.meta_path.insert(0, Refuse())
import kernelformer
print(kernelformer.__version__)
"""

REFUSED = [
    "accelerate",
    "datasets",
    "huggingface_hub",
    "matplotlib",
    "pandas",
    "rich",
    "safetensors",
    "scipy",
    "sklearn",
    "tokenizers",
    "tqdm",
    "transformers",
    "typer",
]


def without(refused: list[str], code: str = "") -> subprocess.CompletedProcess[str]:
    """Import kernelformer, then run ``code``, in a process where ``refused`` cannot be imported."""
    program = IMPORT_WITHOUT.format(refused=refused) + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_import_needs_torch_alone() -> None:
    done = without(REFUSED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [kernelformer.__version__]


@pytest.mark.parametrize(
    ("name", "extra"), [("KernelClassifier", "classifier"), ("convert", "hf"), ("distill", "hf"), ("load", "hf")]
)
def test_what_needs_more_than_torch_says_so(name: str, extra: str) -> None:
    done = without(REFUSED, f"kernelformer.{name}")
    assert f"kernelformer.{name} needs" in done.stderr
    assert f"pip install 'kernelformer[{extra}]'" in done.stderr


def test_particles_need_torch_alone() -> None:
    done = without(REFUSED, "from kernelformer.learn import FourierAlignment, Langevin, Riesz; print('done')")
    assert done.stdout.endswith("done\n"), done.stderr


def test_the_classifier_needs_scikit_learn_and_not_transformers() -> None:
    pytest.importorskip("sklearn")
    refused = ["accelerate", "datasets", "huggingface_hub", "safetensors", "tokenizers", "tqdm", "transformers"]
    fitted = "kernelformer.KernelClassifier(8, max_steps=1).fit([[0.0], [1.0], [2.0]], [0, 1, 0]).predict([[0.0]])"
    done = without(refused, f"print(len({fitted}))")
    assert done.stdout.endswith("\n1\n"), done.stderr


def test_public_names_exist() -> None:
    pytest.importorskip("transformers")
    assert [name for name in kernelformer.__all__ if not hasattr(kernelformer, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        _ = kernelformer.absent


def test_refusal_refuses() -> None:
    assert "torch is not installed" in without(["torch"]).stderr


def test_import_leaves_heavy_modules_alone() -> None:
    """Nothing is imported merely because it is installed. (torch takes tqdm where it finds it.)"""
    heavy = [name for name in REFUSED if name != "tqdm"]
    done = without([], f"print([name for name in {heavy!r} if name in sys.modules])")
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the backend in this environment; `make wheel` builds in isolation."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("the build backend, hatchling, is not installed: make setup")
    folder = tmp_path_factory.mktemp("dist")
    program = "import sys; from hatchling import build; print(build.build_wheel(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", program, folder], cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def test_wheel_holds_every_source_file_and_nothing_else(wheel: Path) -> None:
    sources = ROOT / "src"
    expected = {
        path.relative_to(sources).as_posix()
        for path in (sources / "kernelformer").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert "kernelformer/py.typed" in found
    assert found == expected


def test_wheel_is_pure_python(wheel: Path) -> None:
    assert wheel.name == f"kernelformer-{kernelformer.__version__}-py3-none-any.whl"


def test_metadata(wheel: Path) -> None:
    head = metadata(wheel)
    assert head["Version"] == kernelformer.__version__
    assert head["License-Expression"] == "Apache-2.0"
    assert head["Requires-Python"] == ">=3.10"
    requirements = head.get_all("Requires-Dist") or []
    assert [entry for entry in requirements if "extra ==" not in entry] == ["torch<3,>=2.6"]
    assert set(head.get_all("Provides-Extra") or []) >= {"hf", "cli", "docs", "dev"}


def test_wheel_imports_from_its_own_folder(wheel: Path, tmp_path: Path) -> None:
    """What was built is what runs, not the checkout: the wheel's content is first on the path."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import kernelformer; print(kernelformer.__file__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip().startswith(str(tmp_path))


def test_every_direct_requirement_is_pinned(wheel: Path) -> None:
    """constraints.txt names the tested version of all that pyproject.toml asks for."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0].lower() for line in lines if line and not line.startswith("#")}
    asked = {
        re.split(r"[^\w.-]", entry, maxsplit=1)[0].lower() for entry in metadata(wheel).get_all("Requires-Dist") or []
    }
    assert asked - {"kernelformer"} <= pinned


def test_licence_is_in_full() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
