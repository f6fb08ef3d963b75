"""README and docs: what they show runs, what they tabulate is what the code says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kernelformer import FEATURE_MAPS

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(?P<marker><!-- no-run -->\s*\n)?^```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TABLES = ROOT / "scripts" / "tables.py"


def blocks(page: Path) -> list[str]:
    """Code of the Python blocks, each at its own line numbers; blocks after <!-- no-run --> are left out."""
    text = page.read_text(encoding="utf-8")
    found = BLOCK.finditer(text)
    return ["\n" * text[: m.start("code")].count("\n") + m["code"] for m in found if not m["marker"]]


WITH_CODE = [page for page in PAGES if blocks(page)]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Top to bottom in one namespace, as a reader would."""
    if "transformers" in page.read_text(encoding="utf-8"):
        pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "page"}
    for code in blocks(page):
        exec(compile(code, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_are_such_as_there_are(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `kernelformer ...` of a shell block names a verb, options it has, and all that it needs."""
    typer = pytest.importorskip("typer")
    from kernelformer.cli.app import app

    # For --config OUT/options.toml, which an earlier command writes.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "OUT").mkdir()
    (tmp_path / "OUT" / "options.toml").write_text('model = "MODEL"\n', encoding="utf-8")
    verbs = typer.main.get_command(app).commands
    for line in shell_lines(page):
        words = shlex.split(line, comments=True)
        while words and "=" in words[0]:  # PYTHONPATH=.
            words.pop(0)
        if words[:1] == ["kernelformer"]:
            verbs[words[1]].make_context(words[1], words[2:])


def shell_lines(page: Path) -> list[str]:
    found = re.findall(r"^```(?:sh|console)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [line for block in found for line in block.replace("\\\n", " ").splitlines()]


def test_a_shell_block_is_a_command_or_known(tmp_path: Path) -> None:
    first = {line.split()[0] for page in PAGES for line in shell_lines(page) if line.strip() and line[0] != "#"}
    assert first <= {"kernelformer", "make", "pip", "python", "torchrun", "accelerate", "PYTHONPATH=."}


def test_pages_with_code_are_found() -> None:
    names = {page.relative_to(ROOT).as_posix() for page in WITH_CODE}
    assert {"README.md", "docs/guides/write-a-kernel.md", "docs/guides/convert-an-encoder.md"} <= names


def test_no_run_leaves_a_block_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\na = 1\n```\n\n<!-- no-run -->\n```python\nb = 2\n```\n", encoding="utf-8")
    assert [code.strip() for code in blocks(page)] == ["a = 1"]


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_tables_are_what_the_code_says() -> None:
    done = subprocess.run([sys.executable, TABLES, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_kernel_has_a_row() -> None:
    region = (ROOT / "docs" / "index.md").read_text(encoding="utf-8").split("table:kernels -->")[1]
    assert re.findall(r"^\| `(\w+)` \|", region, re.MULTILINE) == list(FEATURE_MAPS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", text)
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_newcomer_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert {"setup", "check", "test", "demo", "demo-all", "bench", "docs", "gpu-check", "wheel"} <= targets
    for page in (*PAGES, ROOT / "CONTRIBUTING.md"):
        mentioned = re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(mentioned) <= targets
