"""Attention with any feature map, computed exactly: bidirectional, causal, one step."""

from kernelformer.engine.bidirectional import attend_bidirectional, attend_quadratic
from kernelformer.engine.causal import attend_causal, attend_step
from kernelformer.engine.reference import attend_reference
from kernelformer.engine.softmax import attend_softmax
from kernelformer.engine.state import Attended, State, empty_state

__all__ = [
    "Attended",
    "State",
    "attend_bidirectional",
    "attend_causal",
    "attend_quadratic",
    "attend_reference",
    "attend_softmax",
    "attend_step",
    "empty_state",
]
