"""Expressions come to what they say, and follow the law of the original's."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import kernelformer as kf
from kernelformer.tasks import listops
from kernelformer.tasks.listops import LISTOPS, LISTOPS_SHORT, ListOps, draw_listops, evaluate, read_listops, tokens_of


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7", 7),
        ("[MAX 4 3 [MIN 2 3 ] 1 0 ]", 4),
        ("[MED 1 5 8 9 2 ]", 5),
        ("[MED 1 2 4 9 ]", 3),
        ("[MED 1 2 ]", 1),
        ("[SM 9 8 [MAX 5 6 ] ]", 3),
    ],
)
def test_values(expression, value):
    assert evaluate(tokens_of(expression)) == value


def test_brackets_that_do_not_match_are_refused():
    for expression in ("[MAX 1 2", "1 2", "[MIN 1 ] ]"):
        with pytest.raises(kf.DataError, match="brackets"):
            evaluate(tokens_of(expression))


def test_the_parentheses_of_the_original_files_say_nothing():
    assert tokens_of("( ( ( [MAX 4 ) 3 ) ] )") == ["[MAX", "4", "3", "]"]


def test_the_law():
    """Unconditioned draws: a quarter are lists, operators and numbers of arguments are uniform."""
    draw, law = random.Random(0), ListOps(max_depth=2, max_length=100)
    operators, counts, nested = Counter(), Counter(), 0
    for _ in range(8000):
        tokens = []
        assert listops._grow(draw, law, 1, tokens)
        if len(tokens) > 1:
            nested += 1
            operators[tokens[0]] += 1
            counts[len(tokens) - 2] += 1
    assert nested == pytest.approx(2000, abs=200)
    assert len(operators) == 4 and all(n == pytest.approx(nested / 4, rel=0.2) for n in operators.values())
    assert sorted(counts) == list(range(2, 11)) and all(
        n == pytest.approx(nested / 9, rel=0.3) for n in counts.values()
    )


def test_the_originals_statistics():
    """More than 500 and less than 2,000 tokens, ten classes, nesting below ten; a class has about 17 %, as the linear
    models of the arena's table, who learn no more."""
    task = draw_listops(LISTOPS, (400, 5, 5), seed=1)
    lengths = [len(tokens) for tokens in task.train.inputs]
    assert min(lengths) > 500 and max(lengths) < 2000
    assert sum(lengths) / len(lengths) == pytest.approx(1000, rel=0.15)
    assert set(task.train.labels) == set(range(10))
    assert Counter(task.train.labels).most_common(1)[0][1] / 400 == pytest.approx(0.17, abs=0.05)
    for tokens in task.train.inputs[:50]:
        depth = deepest = 0
        for token in tokens:
            depth += (token <= 4) - (token == 5)
            deepest = max(deepest, depth)
        assert 3 < deepest <= 9 and depth == 0


def test_parts_share_no_expression_and_repeat_by_seed():
    task, again = (draw_listops(LISTOPS_SHORT, (300, 50, 50), seed) for seed in (0, 0))
    assert task == again != draw_listops(LISTOPS_SHORT, (300, 50, 50), 1)
    known = [tuple(tokens) for part in task[:3] for tokens in part.inputs]
    assert len(set(known)) == 400


def test_official_files(tmp_path):
    for name in ("train", "val", "test"):
        (tmp_path / f"basic_{name}.tsv").write_text("Source\tTarget\n( ( ( [MAX 4 ) 3 ) ] )\t4\n( [SM 9 ) ]\t9\n")
    task = read_listops(tmp_path)
    assert task.train.labels == [4, 9]
    assert task.train.inputs[0] == [2, 10, 9, 5]
    (tmp_path / "basic_val.tsv").write_text("A\tB\n1\t2\n")
    with pytest.raises(kf.DataError, match=r"basic_val.tsv is no ListOps file"):
        read_listops(tmp_path)
