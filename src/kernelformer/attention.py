"""KernelAttention: the one place where feature maps and engine meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from kernelformer.engine import Attended, State, attend_softmax, read_state
from kernelformer.engine.autocast import no_autocast
from kernelformer.engine.blockwise import Sequence, fold_sequence
from kernelformer.engine.choose import BACKENDS, attend, warn_below_crossover
from kernelformer.engine.hybrid import HybridState, attend_hybrid, empty_hybrid
from kernelformer.engine.packed import split_packed
from kernelformer.engine.padding import without_padding
from kernelformer.engine.parallel import attend_slice, remember_slices, start_of_slice
from kernelformer.engine.shapes import check_shapes, expand_heads, show_shapes
from kernelformer.errors import KernelformerError, ShapeError
from kernelformer.feature_maps import Softmax
from kernelformer.features import FeatureMap
from kernelformer.traced import is_functional

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["KernelAttention", "LayerCall", "kernels_of"]

# A backend asked for by any other name has no window, no bidirectional slices, and no memory.
_IN_TORCH = ("auto", "torch")
_BELOW_CROSSOVER = ("warn", "exact-kernel", "ignore")


class KernelAttention(nn.Module):
    """Attention out_i = phi(q_i)·Σ_j phi(k_j) v_jᵀ / phi(q_i)·Σ_j phi(k_j), linear in the length.

    Sums and state are float32 for half-precision inputs, autocast included; the output has the
    dtype of v. Changing a key or value changes no bit of an earlier causal output. A row that sees
    no key is zero, with zero gradients.

    Args:
        feature_map: what the kernel is; its ``num_heads`` is the number of key heads, or of query heads.
        causal: row i sees keys j <= i.
        below_crossover: at lengths where exact attention is faster than any form of the kernel. "warn" says so once
            in a process, with the length; "exact-kernel" says nothing. Both take the quadratic form of the same
            kernel where that is the fastest. "ignore" says nothing and always takes the linear form.
        window: causal only. Exact softmax over the last ``window`` tokens, the kernel for those before, under one
            normaliser, with a learned factor exp(log_mix) of the kernel's weights per head; 0 is the kernel alone.
        backend: "auto" takes what fits (``engine.explain`` says which and why), "torch" PyTorch's own operators,
            "triton" the fused kernels, or an error that says why they can't.
        group: processes that hold one slice of every sequence each, in the order of their ranks; see
            :meth:`split_over`.

    Shape:
        q [B, Hq, N, D], k [B, H, S, D], v [B, H, S, Dv] -> [B, Hq, N, Dv]; Hq a multiple of H.
        Causal needs N = S; otherwise the lengths are free (cross-attention).
        key_mask bool [B, S], True = visible.

    References:
        Katharopoulos et al. 2020, arXiv 2006.16236.

    Example:
        >>> import torch, kernelformer as kf
        >>> attention = kf.KernelAttention(kf.feature_maps.Elu(head_dim=8, num_heads=2), causal=True)
        >>> q, k, v = torch.randn(3, 1, 2, 5, 8, generator=torch.Generator().manual_seed(0))
        >>> out = attention(q, k, v)
        >>> first, state = attention.stream(q[:, :, :2], k[:, :, :2], v[:, :, :2])
        >>> rest, state = attention.stream(q[:, :, 2:], k[:, :, 2:], v[:, :, 2:], state)
        >>> torch.allclose(out, torch.cat([first, rest], dim=2), atol=1e-6)
        True
    """

    _rows: Tensor
    log_mix: nn.Parameter | None

    def __init__(
        self,
        feature_map: FeatureMap,
        causal: bool = False,
        *,
        below_crossover: str = "warn",
        window: int = 0,
        backend: str = "auto",
        group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        if backend not in BACKENDS:
            raise KernelformerError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
        if window and backend not in _IN_TORCH:
            raise KernelformerError(f'backend="{backend}" does not compute window={window}: take "auto" or window=0')
        self.backend = backend
        if below_crossover not in _BELOW_CROSSOVER:
            raise KernelformerError(
                f"below_crossover must be one of {', '.join(_BELOW_CROSSOVER)}, got {below_crossover!r}"
            )
        if feature_map.is_gated and not causal:
            raise KernelformerError(
                f"{type(feature_map).__name__} is gated, which has an order: build KernelAttention(..., causal=True), "
                "or take a kernel without a gate"
            )
        _check_window(window, feature_map, causal)
        self.window = window
        self.log_mix = nn.Parameter(torch.zeros(feature_map.num_heads)) if window else None
        self.below_crossover = below_crossover
        self.feature_map = feature_map
        self.causal = causal
        self.split_over(group)
        self.register_buffer("_rows", torch.zeros(2, dtype=torch.int64), persistent=False)
        self.register_load_state_dict_post_hook(_count_afresh)  # type: ignore[no-untyped-call]

    def split_over(self, group: ProcessGroup | None) -> None:
        """From now on, what is given is this process's slice of sequences that all processes of ``group`` hold.

        Every process makes the same calls, with slices of any lengths, 0 included, and goes backward through each.
        They exchange states, whose size is free of the length. None: sequences are whole again.

        Raises:
            KernelformerError: exact softmax, a gate, a window, or a backend like "triton" without causal=True.
        """
        if group is not None:
            _check_split(self)
        self.group = group

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        key_mask: Tensor | None = None,
        scale: float | None = None,
        *,
        cu_seqlens: Tensor | None = None,
    ) -> Tensor:
        """Attention over whole sequences.

        Args:
            scale: the softmax scale; None is D ** -0.5. It enters through both sides equally.
            cu_seqlens: offsets [0, N_1, N_1 + N_2, ..., N] of sequences packed one behind the other at batch
                size 1; each is attended to alone. int32 or int64, empty sequences allowed.

        Raises:
            ShapeError: shapes or dtypes do not fit together.
        """
        self._check(q, k, v, key_mask)
        if cu_seqlens is not None:
            return self._packed(q, k, v, key_mask, scale, cu_seqlens)
        if isinstance(self.feature_map, Softmax):
            q, v = without_padding(q, v, key_mask)
            return attend_softmax(q, k, v, causal=self.causal, key_mask=key_mask, scale=scale)
        if self.below_crossover == "warn" and self.group is None:
            warn_below_crossover(q, k, self.feature_map, causal=self.causal)
        return self._attend(q, k, v, None, key_mask, scale)[0]

    def stream(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: State | HybridState | None = None,
        key_mask: Tensor | None = None,
        scale: float | None = None,
    ) -> tuple[Tensor, State | HybridState]:
        """Causal attention over the next segment, of any length, 0 and 1 included.

        In a group the segment is the slices of all processes, and so is what the state has seen.

        Returns:
            The outputs of the segment, and the state to hand to the next call.

        Raises:
            KernelformerError: the attention is not causal, or exact softmax.
            ShapeError: shapes or dtypes do not fit together, or not to the state.
        """
        if not self.causal:
            raise KernelformerError("stream needs causal attention: build KernelAttention(..., causal=True)")
        if isinstance(self.feature_map, Softmax):
            raise KernelformerError(
                "exact softmax has no state of fixed size to stream: call forward, or take a kernel"
            )
        self._check(q, k, v, key_mask)
        out, after = self._attend(q, k, v, state, key_mask, scale)
        assert after is not None
        return out, after

    def remember(self, k: Tensor, v: Tensor, key_mask: Tensor | None = None, scale: float | None = None) -> State:
        """Keys and values of cross-attention as a state of fixed size, for :meth:`recall`.

        Shape:
            k [B, H, S, D], v [B, H, S, Dv]; key_mask bool [B, S].

        Raises:
            KernelformerError: the attention is causal, or exact softmax; or another backend than torch is asked for.
            ShapeError: shapes or dtypes do not fit together.
        """
        self._check_memory()
        heads = self.feature_map.num_heads
        if k.ndim == v.ndim == 4 and heads % k.shape[1] == 0 and k.shape[1] == v.shape[1]:
            k, v = expand_heads(k, v, heads)
        self._check(k, k, v, key_mask)
        with no_autocast(k.device.type):
            k, v = without_padding(k, v, key_mask)
            memory = Sequence(k, k, v, key_mask, scale, None, self._positions(k))
            if self.group is not None:
                return remember_slices(self.feature_map, memory, self.group)
            return fold_sequence(self.feature_map, memory)

    def recall(self, q: Tensor, memory: State, scale: float | None = None, *, start: int = 0) -> Tensor:
        """Cross-attention of the next queries to what :meth:`remember` returned; the cost is free of its length.

        Args:
            q: [B, Hq, N, D], Hq a multiple of the heads of the memory.
            start: position of the first query, for maps that depend on positions.

        Raises:
            KernelformerError: the attention is causal, or exact softmax.
            ShapeError: q does not fit the memory.
        """
        self._check_memory()
        if q.ndim != 4 or q.shape[0] != memory.kv.shape[0] or q.shape[1] % memory.kv.shape[1]:
            raise ShapeError(f"q {list(q.shape)} does not fit a memory of shape {list(memory.kv.shape)}")
        with no_autocast(q.device.type):
            features = self.feature_map.map_q(q, scale, self._positions(q) + start)
            attended = read_state(features, memory, floor=self.feature_map.floor)
            self._count(attended, None)
        return attended.out.to(q.dtype)

    @property
    def floored_share(self) -> float:
        """Share of rows whose denominator met the floor (or underflowed) since the last reset.

        Calls under ``torch.func`` are not counted.
        """
        floored, rows = self._rows.tolist()
        return floored / rows if rows else 0.0

    def reset_floored(self) -> None:
        """Forget the rows counted so far."""
        self._rows.zero_()

    def _packed(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        key_mask: Tensor | None,
        scale: float | None,
        cu_seqlens: Tensor,
    ) -> Tensor:
        if self.group is not None:
            raise KernelformerError("packed sequences cannot be split over processes: give one sequence a row")
        if key_mask is not None:
            raise KernelformerError("give key_mask or cu_seqlens, not both: packed sequences have no padding")
        if q.shape[2] != k.shape[2]:
            raise ShapeError(f"packed sequences need queries and keys of one length, got {show_shapes(q, k, v)}")
        sequences = zip(*(split_packed(x, cu_seqlens) for x in (q, k, v)), strict=True)
        outs = [self(*sequence, scale=scale) for sequence in sequences]
        return torch.cat(outs, dim=2) if outs else v.new_empty(*q.shape[:3], v.shape[-1])

    def _check_memory(self) -> None:
        if self.causal or isinstance(self.feature_map, Softmax):
            raise KernelformerError("a memory needs a kernel and causal=False; causal attention has stream")
        if self.backend not in _IN_TORCH:
            raise KernelformerError(f'backend="{self.backend}" computes no memory of cross-attention: take "auto"')

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: State | HybridState | None,
        key_mask: Tensor | None,
        scale: float | None,
    ) -> tuple[Tensor, State | HybridState | None]:
        feature_map, backend = self.feature_map, self.backend
        with no_autocast(q.device.type):
            sequence = self._sequence(q, k, v, state, key_mask, scale)
            after: State | HybridState | None
            if self.log_mix is not None:
                assert not isinstance(state, State)
                before = empty_hybrid(feature_map, sequence) if state is None else state
                attended, after = attend_hybrid(feature_map, sequence, self.window, self.log_mix, before)
            else:
                assert not isinstance(state, HybridState)
                if self.group is not None:
                    attended, after = attend_slice(
                        feature_map, sequence, self.group, causal=self.causal, state=state, wanted=backend
                    )
                else:
                    linear = self.below_crossover == "ignore"
                    attended, after = attend(
                        feature_map, sequence, causal=self.causal, state=state, linear=linear, wanted=backend
                    )
            self._count(attended, key_mask)
        return attended.out.to(v.dtype), after

    def _sequence(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: State | HybridState | None,
        key_mask: Tensor | None,
        scale: float | None,
    ) -> Sequence:
        k, v = expand_heads(k, v, self.feature_map.num_heads)
        q, v = without_padding(q, v, key_mask)
        self._check_state(state, k, v)
        of_k = self._positions(k) if state is None else self._positions(k) + state.length
        # In a group every process exchanges as often, whatever its own lengths.
        of_q = of_k if self.causal or (self.group is None and q.shape[2] == k.shape[2]) else self._positions(q)
        return Sequence(q, k, v, key_mask, scale, of_q, of_k)

    def _positions(self, x: Tensor) -> Tensor:
        """Positions within the whole sequence, where the map looks at them."""
        positions = torch.arange(x.shape[2], device=x.device)
        if self.group is None or not self.feature_map.sees_positions:
            return positions
        return positions + start_of_slice(x, self.group)

    def _check_state(self, state: State | HybridState | None, k: Tensor, v: Tensor) -> None:
        if state is None:
            return
        if isinstance(state, HybridState) != (self.window > 0):
            raise ShapeError(f"the state is of attention with another window, this one has window={self.window}")
        far = state.far if isinstance(state, HybridState) else state
        expected = (*k.shape[:2], self.feature_map.num_features, v.shape[-1])
        if far.kv.shape != expected:
            raise ShapeError(f"the state is of shape {list(far.kv.shape)}, this input needs {list(expected)}")

    def _check(self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> None:
        check_shapes(q, k, v, key_mask, heads=self.feature_map.num_heads, causal=self.causal)

    @torch.no_grad()
    def _count(self, attended: Attended, key_mask: Tensor | None) -> None:
        if is_functional():
            # A function under torch.func may change nothing outside.
            return
        floored = attended.floored
        if key_mask is None or key_mask.shape[1] != floored.shape[2]:
            self._rows[0] += floored.sum()
            self._rows[1] += floored.numel()
            return
        seen = key_mask[:, None, :].expand(floored.shape)
        self._rows += torch.stack([(floored & seen).sum(), seen.sum()])


def kernels_of(model: nn.Module) -> dict[str, KernelAttention]:
    """Path -> kernel attention, for every one in ``model``, in order."""
    return {name: module for name, module in model.named_modules() if isinstance(module, KernelAttention)}


def _check_window(window: int, feature_map: FeatureMap, causal: bool) -> None:
    if not isinstance(window, int) or isinstance(window, bool) or window < 0:
        raise KernelformerError(f"window must be a number of tokens, 0 for none, got {window!r}")
    if window and not causal:
        raise KernelformerError(f"window={window} needs causal attention: build KernelAttention(..., causal=True)")
    if window and (feature_map.is_gated or isinstance(feature_map, Softmax)):
        raise KernelformerError(
            f"{type(feature_map).__name__} cannot be combined with window={window}: take a kernel without a gate, "
            "or window=0"
        )


def _check_split(attention: KernelAttention) -> None:
    name = type(attention.feature_map).__name__
    if isinstance(attention.feature_map, Softmax):
        raise KernelformerError("exact softmax has no state to exchange between processes: take a kernel")
    if attention.feature_map.is_gated or attention.window:
        what = f"window={attention.window}" if attention.window else f"the gate of {name}"
        raise KernelformerError(f"{what} cannot be split over processes: take a kernel without a gate, and window=0")
    if attention.backend not in _IN_TORCH and not attention.causal:
        raise KernelformerError(
            f'backend="{attention.backend}" does not split bidirectional attention over processes: take "auto"'
        )


class LayerCall(NamedTuple):
    """One call of a model's attention layer: what kernel attention is given, and what softmax makes of it.

    Shape:
        q, k, v, key_mask as ``KernelAttention`` takes them; softmax [B, Hq, N, Dv].
    """

    kernel: KernelAttention
    q: Tensor
    k: Tensor
    v: Tensor
    key_mask: Tensor | None
    scale: float | None
    softmax: Tensor


def _count_afresh(attention: nn.Module, _: object) -> None:
    """Counts are of the module that ran, not of the one saved; built on the meta device, there are none yet."""
    assert isinstance(attention, KernelAttention)
    attention._rows = torch.zeros_like(attention._rows, device=attention.feature_map.key_shift.device)
