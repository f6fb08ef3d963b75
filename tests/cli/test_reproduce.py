"""Claims are listed, chosen and refused by name; each has its defaults."""

from __future__ import annotations

import pytest

import kernelformer as kf
from kernelformer.cli.claims import CLAIMS, Claim
from kernelformer.cli.reproduce import reproduce


def test_the_claims_are_listed(capsys):
    reproduce()
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == list(CLAIMS)


def test_no_claim_is_the_beginning_of_another():
    """Files are found by the name they begin with."""
    assert [(a, b) for a in CLAIMS for b in CLAIMS if a != b and b.startswith(a)] == []


@pytest.fixture
def runs(monkeypatch):
    seen = []
    monkeypatch.setitem(CLAIMS, "told", Claim("a paper: it is so", 4, seen.append, ("small", "paper")))
    return seen


def test_a_claim_is_handed_what_was_asked(runs, tmp_path):
    reproduce("told", str(tmp_path / "deep" / "out"))
    reproduce("told", str(tmp_path), 3, "paper")
    assert [(run.name, run.seeds, run.scale) for run in runs] == [("told", 4, "small"), ("told", 3, "paper")]
    assert runs[0].folder.is_dir()
    runs[1].write_plots({"one": "<svg/>"})
    assert (tmp_path / "told-one.svg").read_text() == "<svg/>"


def test_refusals(runs, tmp_path):
    with pytest.raises(kf.KernelformerError, match=r"no claim 'absent'; there are: .*told"):
        reproduce("absent", str(tmp_path))
    with pytest.raises(kf.KernelformerError, match="at least 2"):
        reproduce("told", str(tmp_path), 1)
    with pytest.raises(kf.KernelformerError, match="no scale 'huge'; there are: small, paper"):
        reproduce("told", str(tmp_path), 3, "huge")
    assert runs == []
