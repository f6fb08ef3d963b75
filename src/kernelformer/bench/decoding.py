"""Time and memory of one generated token against the context: keys and values of softmax against the kernel's state."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypedDict

import torch
from transformers import DynamicCache, PreTrainedModel

from kernelformer.bench.clock import median_seconds
from kernelformer.bench.drawing import standalone
from kernelformer.bench.markdown import markdown_table
from kernelformer.bench.plots import plot_scaling
from kernelformer.bench.rows import Rows
from kernelformer.errors import KernelformerError
from kernelformer.hf import convert, kernels
from kernelformer.hf.cache import KernelStateLayer

__all__ = ["CONTEXTS", "Decoding", "decoding_markdown", "decoding_plots", "measure_decoding"]

CONTEXTS: Final = (256, 1024, 4096, 16384, 65536)

_PROMPT: Final = 8


class Decoding(TypedDict):
    """One context: median milliseconds a token, and MiB of the cache, of both."""

    context: int
    softmax_ms: float
    kernel_ms: float
    softmax_mib: float
    kernel_mib: float


def measure_decoding(
    teacher: PreTrainedModel,
    kernel: str,
    num_features: int,
    window: int = 0,
    *,
    rows: Rows,
    contexts: Sequence[int] = CONTEXTS,
    seconds: float = 8.0,
    say: Callable[[str], None] = lambda _: None,
) -> list[Decoding]:
    """Generate single tokens at each context, teacher and student in turns, batch 1.

    What a cache holds changes no time, so it is not computed: keys and values are drawn, and the state is that of a
    short prompt, told that it has seen ``context`` tokens.

    Args:
        teacher: a decoder with softmax attention; its copy is converted, its kernels not fitted.
        rows: what was measured before an interruption.
        seconds: for each context, both together.

    Raises:
        KernelformerError: a context beyond the positions of the model.
    """
    positions = getattr(teacher.config, "max_position_embeddings", None)
    rotary = getattr(teacher.config, "rope_parameters", None) is not None
    if positions is not None and not rotary and max(contexts) > positions:
        raise KernelformerError(f"the model has {positions} positions, got contexts up to {max(contexts)}")
    student: Any = convert(copy.deepcopy(teacher), kernel, num_features, window=window)
    wanted = {f"context {context:,}": partial(_row, teacher, student, context, seconds) for context in contexts}
    return list(rows.get_all(wanted, say).values())


@torch.no_grad()
def _row(teacher: PreTrainedModel, student: PreTrainedModel, context: int, seconds: float) -> Decoding:
    keys, state = _drawn_cache(teacher, context), _told_state(student, context)
    sizes = [_mib(cache) for cache in (keys, state)]
    found = median_seconds({"softmax": _step(teacher, keys), "kernel": _step(student, state)}, seconds)
    return {
        "context": context,
        "softmax_ms": 1e3 * found["softmax"],
        "kernel_ms": 1e3 * found["kernel"],
        "softmax_mib": sizes[0],
        "kernel_mib": sizes[1],
    }


def decoding_markdown(rows: Sequence[Decoding]) -> str:
    """A row a context."""
    header = ["context", "softmax ms", "kernel ms", "ratio", "softmax MiB", "kernel MiB"]
    lines = [
        [
            f"{row['context']:,}",
            f"{row['softmax_ms']:.1f}",
            f"{row['kernel_ms']:.1f}",
            f"{row['softmax_ms'] / row['kernel_ms']:.2f}",
            f"{row['softmax_mib']:.1f}",
            f"{row['kernel_mib']:.1f}",
        ]
        for row in rows
    ]
    return markdown_table(header, lines, left=())


def decoding_plots(rows: Sequence[Decoding]) -> dict[str, str]:
    """Time and memory against the context."""
    time = [[(row["context"], row["softmax_ms"]) for row in rows], [(row["context"], row["kernel_ms"]) for row in rows]]
    memory = [
        [(row["context"], row["softmax_mib"]) for row in rows],
        [(row["context"], row["kernel_mib"]) for row in rows],
    ]
    return {
        "time": standalone(plot_scaling(time[0], time[1], "one token, ms")),
        "memory": standalone(plot_scaling(memory[0], memory[1], "cache, MiB")),
    }


def _step(model: Any, cache: DynamicCache) -> Callable[[], object]:
    token = torch.full((1, 1), 5)
    return lambda: model(token, past_key_values=cache, use_cache=True)


def _drawn_cache(model: Any, context: int) -> DynamicCache:
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache, generator = DynamicCache(), torch.Generator().manual_seed(0)
    for layer in range(config.num_hidden_layers):
        # One draw for both: what they hold changes no time.
        drawn = torch.randn(1, heads, context, width, generator=generator, dtype=model.dtype)
        cache.update(drawn, drawn.clone(), layer)
    return cache


def _told_state(model: Any, context: int) -> DynamicCache:
    cache = DynamicCache()
    model(torch.full((1, _PROMPT), 5), past_key_values=cache, use_cache=True)
    window = max(kernel.window for kernel in kernels(model).values())
    if window > _PROMPT:
        model(torch.full((1, window), 5), past_key_values=cache, use_cache=True)
    for layer in cache.layers:
        if isinstance(layer, KernelStateLayer):
            layer.tell_seen(context)
    return cache


def _mib(cache: DynamicCache) -> float:
    total, layers = 0, list[Any](cache.layers)
    for layer in layers:
        total += layer.nbytes if isinstance(layer, KernelStateLayer) else layer.keys.nbytes + layer.values.nbytes
    return total / 2**20
