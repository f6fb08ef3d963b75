"""What cannot be computed is refused in one line that says what was expected and what came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelformer as kf
from kernelformer.feature_maps import Cosformer, Elu, Favor, FlexformerN, Hedgehog, Softmax

X = torch.zeros(2, 2, 5, 8)


def attend(*arguments: Any, causal: bool = False, **named: Any) -> Any:
    return kf.KernelAttention(Hedgehog(8, 2, 16), causal)(*arguments, **named)


def stream(state: Any, *inputs: torch.Tensor) -> Any:
    return kf.KernelAttention(Hedgehog(8, 2, 16), True).stream(*inputs, state)


CALLS: dict[str, Callable[[], Any]] = {
    "q without heads": lambda: attend(X[0], X, X),
    "five dimensions": lambda: attend(X[None], X[None], X[None]),
    "two batch sizes": lambda: attend(X[:1], X, X),
    "k and v of two lengths": lambda: attend(X, X, X[:, :, :3]),
    "k and v of two heads": lambda: attend(X, X, X[:, :1]),
    "another head width": lambda: attend(X[..., :4], X[..., :4], X),
    "no heads": lambda: attend(X[:, :0], X[:, :0], X[:, :0]),
    "heads that do not divide": lambda: attend(X.repeat(1, 2, 1, 1)[:, :3], X, X),
    "other heads than the map's": lambda: attend(X[:, :1], X[:, :1], X[:, :1]),
    "integers": lambda: attend(X.long(), X.long(), X.long()),
    "complex numbers": lambda: attend(*[X.to(torch.complex64)] * 3),
    "two dtypes": lambda: attend(X, X.double(), X),
    "causal of two lengths": lambda: attend(X[:, :, :3], X, X, causal=True),
    "a mask of floats": lambda: attend(X, X, X, torch.ones(2, 5)),
    "a mask of another length": lambda: attend(X, X, X, torch.ones(2, 4, dtype=torch.bool)),
    "a mask of pairs": lambda: attend(X, X, X, torch.ones(2, 5, 5, dtype=torch.bool)),
    "a mask of integers": lambda: attend(X, X, X, torch.ones(2, 5, dtype=torch.int64)),
    "scale zero": lambda: attend(X, X, X, scale=0.0),
    "a negative scale": lambda: attend(X, X, X, scale=-1.0),
    "scale NaN": lambda: attend(X, X, X, scale=float("nan")),
    "an infinite scale": lambda: attend(X, X, X, scale=float("inf")),
    "offsets beyond the end": lambda: attend(X[:1], X[:1], X[:1], cu_seqlens=torch.tensor([0, 9])),
    "offsets that fall": lambda: attend(X[:1], X[:1], X[:1], cu_seqlens=torch.tensor([0, 4, 2, 5])),
    "offsets of floats": lambda: attend(X[:1], X[:1], X[:1], cu_seqlens=torch.tensor([0.0, 5.0])),
    "offsets and a mask": lambda: attend(
        X[:1], X[:1], X[:1], torch.ones(1, 5, dtype=torch.bool), cu_seqlens=torch.tensor([0, 5])
    ),
    "offsets of a batch": lambda: attend(X, X, X, cu_seqlens=torch.tensor([0, 5])),
    "no offsets": lambda: attend(X[:1], X[:1], X[:1], cu_seqlens=torch.tensor([], dtype=torch.int64)),
    "a stream that is not causal": lambda: kf.KernelAttention(Hedgehog(8, 2, 16)).stream(X, X, X),
    "a stream of softmax": lambda: kf.KernelAttention(Softmax(8, 2), True).stream(X, X, X),
    "a state of another batch": lambda: stream(stream(None, *[X[:1]] * 3)[1], X, X, X),
    "a state of another width": lambda: stream(stream(None, X, X, X[..., :3])[1], X, X, X),
    "a memory of causal attention": lambda: kf.KernelAttention(Elu(8, 2), True).remember(X, X),
    "a memory of another batch": lambda: kf.KernelAttention(Elu(8, 2)).recall(
        X, kf.KernelAttention(Elu(8, 2)).remember(X[:1], X[:1])
    ),
    "an unknown backend": lambda: kf.KernelAttention(Elu(8, 2), backend="cuda"),
    "an unknown crossover": lambda: kf.KernelAttention(Elu(8, 2), below_crossover="never"),
    "a negative window": lambda: kf.KernelAttention(Elu(8, 2), True, window=-1),
    "a window of half a token": lambda: kf.KernelAttention(Elu(8, 2), True, window=0.5),  # type: ignore[arg-type]
    "a window that looks ahead": lambda: kf.KernelAttention(Elu(8, 2), window=4),
    "no head width": lambda: Favor(0, 2, 16),
    "a negative number of heads": lambda: Favor(8, -2, 16),
    "half a feature": lambda: Favor(8, 2, 0.5),  # type: ignore[arg-type]
    "True features": lambda: Favor(8, 2, True),
    "features as text": lambda: Favor(8, 2, "16"),  # type: ignore[arg-type]
    "odd features of pairs": lambda: Hedgehog(8, 2, 7),
    "a floor above one": lambda: FlexformerN(8, 2, 16, floor=2.0),
    "a floor of NaN": lambda: FlexformerN(8, 2, 16, floor=float("nan")),
    "a longest length of zero": lambda: Cosformer(8, 2, max_length=0),
    "a kernel that is not there": lambda: kf.feature_maps.find_feature_map("hedgehg"),
    "a module that is not there": lambda: kf.feature_maps.find_feature_map("no_such_module:Map"),
    "a class that is no map": lambda: kf.feature_maps.find_feature_map("collections:OrderedDict"),
    "a function for a class": lambda: kf.feature_maps.find_feature_map("os:getcwd"),
    "an empty name": lambda: kf.feature_maps.find_feature_map(""),
    "a path for a module": lambda: kf.feature_maps.find_feature_map("../evil:Map"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_bad_call_is_one_clear_error(name: str) -> None:
    with pytest.raises(kf.KernelformerError) as caught:
        CALLS[name]()
    message = str(caught.value)
    assert message
    assert len(message.splitlines()) == 1
    assert len(message) < 400


SIZES = st.integers(0, 6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(SIZES, min_size=2, max_size=5),
    st.lists(SIZES, min_size=2, max_size=5),
    st.lists(SIZES, min_size=2, max_size=5),
    st.booleans(),
)
def test_any_shapes_are_computed_or_refused(q: list[int], k: list[int], v: list[int], causal: bool) -> None:
    attention = kf.KernelAttention(Elu(4, 2), causal, below_crossover="ignore")
    try:
        out = attention(torch.ones(q), torch.ones(k), torch.ones(v))
    except kf.KernelformerError:
        return
    assert list(out.shape) == [*q[:3], v[3]]
    assert bool(out.isfinite().all())


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(1, 40), st.booleans(), st.sampled_from([Elu, Favor, FlexformerN]))
def test_any_mask_hides_what_it_hides(data: Any, batch: int, length: int, causal: bool, kind: Any) -> None:
    """Whatever stands at masked keys, NaN and infinity included, wherever they are, changes no row."""
    rows = data.draw(
        st.lists(st.lists(st.booleans(), min_size=length, max_size=length), min_size=batch, max_size=batch)
    )
    mask = torch.tensor(rows)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(batch, 2, length, 4, generator=generator) for _ in range(3))
    attention = kf.KernelAttention(kind(4, 2), causal, below_crossover="ignore")
    spoilt = data.draw(st.sampled_from([torch.nan, torch.inf, 1e30]))
    hidden = ~mask[:, None, :, None]
    with torch.no_grad():
        clean, dirty = (attention(x, y, z, mask) for x, y, z in
                        ((q, k, v), (q, k.masked_fill(hidden, spoilt), v.masked_fill(hidden, spoilt))))  # fmt: skip
    assert torch.equal(clean, dirty)
    assert bool(clean.isfinite().all())
