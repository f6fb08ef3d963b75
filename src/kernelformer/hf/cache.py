"""What a converted decoder remembers while it generates: a state of fixed size in the place of keys and values.

transformers hands a cache from layer to layer, each attention module passes its new keys and values to
``cache.update``, and the attention function sees what that returns. Before a converted module runs, a hook puts a
:class:`KernelStateLayer` at its place in whatever cache arrives, and hands it on to the attention function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from transformers.cache_utils import Cache, CacheLayerMixin, EncoderDecoderCache, StaticLayer

from kernelformer.attention import KernelAttention
from kernelformer.engine import HybridState, State
from kernelformer.errors import KernelformerError
from kernelformer.feature_maps import Softmax
from kernelformer.hf.interface import NAME, kernel_of

__all__ = ["KernelStateLayer", "keep_state"]

# By family; transformers renamed the second to the first in 5.24.
_CACHE_NAMES = ("cache", "past_key_values", "layer_past")


class KernelStateLayer(CacheLayerMixin):
    """One layer of a transformers cache that holds the state of causal kernel attention.

    Its size does not depend on the tokens seen. It cannot be cropped, since a sum does not forget: assisted
    decoding, which takes tokens back, is refused. Gradients flow through it as through a cache of keys and values.

    Attributes:
        state: the sums over the tokens seen; None before the first.
    """

    is_compileable = False
    is_croppable = False
    is_sliding = False
    supports_early_init = False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.state: State | HybridState | None = None
        self._seen = 0
        self._awaited = False

    @property
    def nbytes(self) -> int:
        """Bytes of the state."""
        return sum(x.numel() * x.element_size() for x in _tensors(self.state))

    def await_update(self) -> None:
        """Allow the next update: the attention that follows knows this layer, and will read and write its state."""
        self._awaited = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to prepare: the kernel makes the state."""
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Count the new tokens and return them as they came; the state takes the place of the older ones.

        Raises:
            KernelformerError: whoever asks is not a converted layer, and would miss the older tokens.
        """
        if not self._awaited:
            raise KernelformerError(
                "this cache holds the state of kernel attention, and the attention that asks is softmax: give a cache "
                "only to the converted model that filled it"
            )
        self._awaited = False
        self.is_initialized = True
        self._seen += key_states.shape[-2]
        return key_states, value_states

    def get_seq_length(self) -> int:
        """Tokens seen."""
        return self._seen

    def tell_seen(self, tokens: int) -> None:
        """Count as if it had seen so many tokens: to measure a long context without computing it."""
        self._seen = tokens

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the padding mask: a column for every token seen and to come."""
        return self._seen + query_length, 0

    def get_max_length(self) -> int:
        """There is no maximum."""
        return -1

    def get_max_cache_shape(self) -> int:
        """The same, by its name before transformers 5.24."""
        return -1

    def offload(self) -> None:
        """The state stays where it is: it is small."""

    def prefetch(self) -> None:
        """See :meth:`offload`."""

    def reset(self) -> None:
        """Forget all tokens."""
        self.state, self._seen, self.is_initialized = None, 0, False

    def crop(self, tokens_to_remove: int) -> None:
        """Refused, but for no token at all.

        Raises:
            KernelformerError: always else.
        """
        if tokens_to_remove:
            raise KernelformerError(
                "the state of kernel attention is a sum, from which no token can be taken back: generate without "
                "assisted decoding or prompt lookup, or deepcopy the cache before the tokens to take back"
            )

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Row i becomes what row beam_idx[i] was."""
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows, by index or as a bool mask."""
        self._change_rows(lambda x: x[indices.to(x.device)])

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row."""
        self._change_rows(lambda x: x.repeat_interleave(repeats, 0))

    def _change_rows(self, change: Callable[[Tensor], Tensor]) -> None:
        if isinstance(self.state, HybridState):
            far, *near = self.state
            self.state = HybridState(_change_sums(far, change), *(change(x) for x in near))
        elif self.state is not None:
            self.state = _change_sums(self.state, change)


def _change_sums(state: State, change: Callable[[Tensor], Tensor]) -> State:
    kv, k_sum, mass, log_max, length = state
    return State(change(kv), change(k_sum), change(mass), change(log_max), length)


def _tensors(state: State | HybridState | None) -> tuple[Tensor, ...]:
    if isinstance(state, HybridState):
        return (*state.far, *state[1:])
    return state or ()


def keep_state(module: nn.Module) -> None:
    """Let a causal attention module keep a state in the caches it is given. It survives copies, not saving."""
    module.register_forward_pre_hook(_give_state, with_kwargs=True)


def _give_state(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    cache = _cache_of(kwargs)
    if cache is None or kwargs.get("layer_objective") is not None or not _is_ours(module):
        return None
    index: Any = module.layer_idx
    layers = cache.layers
    while len(layers) <= index and cache.layer_class_to_replicate is not None:
        layers.append(cache.layer_class_to_replicate())
    if not _has_state(kernel_of(module)):
        if isinstance(layers[index], StaticLayer):
            raise KernelformerError(
                "a static cache needs every layer converted to a kernel, and here some are softmax: generate without "
                "cache_implementation"
            )
        return None
    layer = layers[index]
    if not isinstance(layer, KernelStateLayer):
        if isinstance(layer, CacheLayerMixin) and int(layer.get_seq_length()):
            raise KernelformerError(
                "this cache holds keys and values of softmax attention, from which a converted layer cannot go on: "
                "start with a new cache"
            )
        layer = layers[index] = KernelStateLayer()
    kernel = kernel_of(module)
    if kernel is not None and kernel.group is not None:
        raise KernelformerError(
            "a sequence that is split over processes fills no cache, which would count this process's tokens alone: "
            "give use_cache=False"
        )
    layer.await_update()
    return args, {**kwargs, "kernel_state": layer}


def _cache_of(kwargs: dict[str, Any]) -> Cache | None:
    cache = next((kwargs[name] for name in _CACHE_NAMES if kwargs.get(name) is not None), None)
    if isinstance(cache, EncoderDecoderCache):
        return cache.self_attention_cache
    return cache if isinstance(cache, Cache) else None


def _is_ours(module: nn.Module) -> bool:
    """Whether the model attends by our function at present, and not by another one that was set since."""
    config: Any = getattr(module, "config", None)
    return config is not None and config._attn_implementation == NAME


def _has_state(kernel: KernelAttention | None) -> bool:
    return kernel is not None and not isinstance(kernel.feature_map, Softmax)
