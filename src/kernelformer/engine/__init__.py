"""Attention with any feature map, computed exactly: bidirectional, causal, one step."""

from kernelformer.engine.bidirectional import attend_bidirectional, attend_quadratic, fold_keys, read_state
from kernelformer.engine.causal import attend_causal, attend_step
from kernelformer.engine.choose import Choice, explain
from kernelformer.engine.hybrid import HybridState
from kernelformer.engine.reference import attend_reference
from kernelformer.engine.softmax import attend_softmax
from kernelformer.engine.state import Attended, State, empty_state

__all__ = [
    "Attended",
    "Choice",
    "HybridState",
    "State",
    "attend_bidirectional",
    "attend_causal",
    "attend_quadratic",
    "attend_reference",
    "attend_softmax",
    "attend_step",
    "empty_state",
    "explain",
    "fold_keys",
    "read_state",
]
