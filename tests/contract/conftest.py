"""Every law runs over every entry of ``FEATURE_MAPS``: a new map is held to all of them by being listed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import kernelformer as kf
from kernelformer.engine import Attended, attend_reference

HEAD_DIM, NUM_HEADS, NUM_FEATURES, VALUE_DIM = 8, 2, 16, 6
# What a map needs beyond its sizes, by the name of the argument.
NEEDED = {"max_length": 4096}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "map_name" in metafunc.fixturenames:
        metafunc.parametrize("map_name", sorted(kf.FEATURE_MAPS))
    for argument, positive in (("positive_name", True), ("signed_name", False)):
        if argument in metafunc.fixturenames:
            names = sorted(name for name, cls in kf.FEATURE_MAPS.items() if cls.is_positive is positive)
            metafunc.parametrize(argument, names)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Gated maps have causal forms alone: their other cases do not exist."""
    kept, left_out = [], []
    for item in items:
        (left_out if _needs_an_order(item) else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def _needs_an_order(item: pytest.Item) -> bool:
    arguments = getattr(item, "callspec", None) and item.callspec.params
    if not arguments:
        return False
    names = [arguments[name] for name in ("map_name", "positive_name", "signed_name") if name in arguments]
    if not any(kf.FEATURE_MAPS[name].is_gated for name in names):
        return False
    forms = [form for form in arguments.values() if isinstance(form, Form)]
    bidirectional = item.get_closest_marker("bidirectional") is not None
    return bidirectional or arguments.get("causal") is False or any(not form.causal for form in forms)


def seed(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def build_map(
    name: str,
    head_dim: int = HEAD_DIM,
    num_heads: int = NUM_HEADS,
    num_features: int = NUM_FEATURES,
    *,
    moved: bool = True,
    number: int = 0,
) -> kf.FeatureMap:
    """A map off its start, where no parameter hides behind a zero or an identity; at its start if not ``moved``."""
    cls = kf.FEATURE_MAPS[name]
    arguments = inspect.signature(cls).parameters
    extra = {key: value for key, value in NEEDED.items() if key in arguments}
    # A default of None says that the map derives its width from head_dim.
    width = None if arguments["num_features"].default is None else num_features
    feature_map = cls(head_dim, num_heads, width, generator=seed(number), **extra)
    if moved:
        with torch.no_grad():
            for tensor in (*feature_map.parameters(), feature_map.key_shift):
                tensor.add_(0.1 * torch.randn(tensor.shape, generator=seed(number + 1)))
    return feature_map


@dataclass(frozen=True)
class Form:
    """A way to call attention, with its lengths: "short" in the quadratic form, the others in the linear one."""

    name: str
    queries: int
    keys: int
    causal: bool
    pieces: tuple[int, ...] = ()

    def attention(self, feature_map: kf.FeatureMap) -> kf.KernelAttention:
        below = "warn" if self.name == "short" else "ignore"
        return kf.KernelAttention(feature_map, causal=self.causal, below_crossover=below)

    def run(
        self, attention: kf.KernelAttention, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None = None
    ) -> Tensor:
        if not self.pieces:
            return attention(q, k, v, key_mask)
        outs, state, start = [], None, 0
        for size in self.pieces:
            rows = slice(start, start + size)
            mask = None if key_mask is None else key_mask[:, rows]
            out, state = attention.stream(q[:, :, rows], k[:, :, rows], v[:, :, rows], state, mask)
            outs.append(out)
            start += size
        assert start == q.shape[2]
        return torch.cat(outs, dim=2)


FORMS = (
    Form("short", 5, 5, False),
    Form("bidirectional", 40, 40, False),
    Form("cross", 9, 37, False),
    Form("causal", 70, 70, True),
    Form("stream", 70, 70, True, (0, 1, 2, 1, 31, 0, 35)),
)


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def form(request: pytest.FixtureRequest) -> Form:
    return request.param


@pytest.fixture(params=[form for form in FORMS if form.queries == form.keys], ids=lambda form: form.name)
def self_form(request: pytest.FixtureRequest) -> Form:
    return request.param


@pytest.fixture(params=[form for form in FORMS if form.causal], ids=lambda form: form.name)
def causal_form(request: pytest.FixtureRequest) -> Form:
    return request.param


@pytest.fixture(scope="session")
def build() -> Callable[..., kf.FeatureMap]:
    return build_map


@pytest.fixture(scope="session")
def draw() -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """q, k, v of the sizes that the laws use, N(0, scale²) for q and k."""

    def drawn(
        queries: int,
        keys: int | None = None,
        *,
        batch: int = 2,
        heads: int = NUM_HEADS,
        groups: int = 1,
        head_dim: int = HEAD_DIM,
        value_dim: int = VALUE_DIM,
        scale: float = 1.0,
        dtype: torch.dtype = torch.float32,
        number: int = 7,
    ) -> tuple[Tensor, Tensor, Tensor]:
        generator = seed(number)
        keys = queries if keys is None else keys
        q = torch.randn(batch, heads * groups, queries, head_dim, generator=generator, dtype=torch.float64)
        k = torch.randn(batch, heads, keys, head_dim, generator=generator, dtype=torch.float64)
        v = torch.randn(batch, heads, keys, value_dim, generator=generator, dtype=torch.float64)
        return (scale * q).to(dtype), (scale * k).to(dtype), v.to(dtype)

    return drawn


@pytest.fixture(scope="session")
def reference() -> Callable[..., Attended]:
    """What attention must return, in float64, from the features of float64 inputs."""

    def attended(
        feature_map: kf.FeatureMap,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        key_mask: Tensor | None = None,
        *,
        causal: bool = False,
        scale: float | None = None,
    ) -> Attended:
        features_q = feature_map.map_q(q.double(), scale, torch.arange(q.shape[2]))
        features_k = feature_map.map_k(k.double(), scale, key_mask, torch.arange(k.shape[2]))
        return attend_reference(features_q, features_k, v, causal=causal, floor=feature_map.floor)

    return attended


@pytest.fixture(scope="session")
def gradients() -> Callable[..., dict[str, Tensor]]:
    """Gradients of Σ out · weight by name, zeros where there is none."""

    def of(
        out: Tensor, feature_map: torch.nn.Module, weight: Tensor | None = None, **inputs: Tensor
    ) -> dict[str, Tensor]:
        if weight is None:
            weight = torch.randn(out.shape, generator=seed(11), dtype=torch.float64)
        named = inputs | {name: p for name, p in feature_map.named_parameters() if p.requires_grad}
        loss = (out.double() * weight).sum()
        found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        return {
            name: torch.zeros_like(tensor) if gradient is None else gradient
            for (name, tensor), gradient in zip(named.items(), found, strict=True)
        }

    return of


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """All maps share the code of ``forward``: its compiled versions would count as recompilations."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
