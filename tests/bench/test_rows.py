"""A study goes on where it stopped, and only with the settings that it had."""

from __future__ import annotations

import pytest

import kernelformer as kf
from kernelformer.bench.rows import Rows
from kernelformer.learn import curves


def never():
    raise AssertionError("measured again")


def test_what_was_measured_is_read(tmp_path):
    path = tmp_path / "study.rows.jsonl"
    first = Rows(path, {"seeds": (1, 2)})
    assert first.get("a", lambda: {"value": 0.1}) == {"value": 0.1}
    assert first.get("a", never) == {"value": 0.1}
    again = Rows(path, {"seeds": (1, 2)})
    assert again.get("a", never) == {"value": 0.1}
    assert again.get("b", lambda: {"value": 2}) == {"value": 2}
    again.finish()
    assert not path.exists()


def test_all_rows_come_in_their_order_and_the_time_left_is_told(tmp_path):
    rows = Rows(tmp_path / "study.rows.jsonl", {})
    rows.get("b", lambda: {"value": 2})
    told = []
    found = rows.get_all({"a": lambda: {"value": 1}, "b": never, "c": lambda: {"value": 3}}, told.append)
    assert list(found.items()) == [("a", {"value": 1}), ("b", {"value": 2}), ("c", {"value": 3})]
    assert told == ["[2/3] a", "[3/3] c, about 0 s left"]


def test_trainings_of_a_row_are_shown_where_they_were_asked_to_be(tmp_path):
    def measure():
        return {"events": str(curves.EVENTS.get())}

    assert Rows(tmp_path / "a.rows.jsonl", {}).get("favor, 0", measure) == {"events": "None"}
    shown = Rows(tmp_path / "b.rows.jsonl", {}, tmp_path / "events").get("favor, 0", measure)
    assert shown == {"events": str(tmp_path / "events" / "favor, 0")}


@pytest.mark.parametrize("cut", [1, 5])
def test_a_line_that_was_being_written_is_measured_again(tmp_path, cut):
    path = tmp_path / "study.rows.jsonl"
    rows = Rows(path, {})
    rows.get("a", lambda: {"value": 1})
    rows.get("b", lambda: {"value": 2})
    path.write_bytes(path.read_bytes()[:-cut])
    again = Rows(path, {})
    assert again.get("a", never) == {"value": 1}
    assert again.get("b", lambda: {"value": 3}) == {"value": 3}
    assert Rows(path, {}).get("b", never) == {"value": 3}


def test_other_settings_are_refused(tmp_path):
    path = tmp_path / "study.rows.jsonl"
    Rows(path, {"seeds": 2})
    with pytest.raises(kf.KernelformerError, match=r'other settings.*"seeds": 2'):
        Rows(path, {"seeds": 3})
