"""How two answers to one request differ: values, shapes, missing outputs, failures.

Pure: no I/O, no clock. ``tensors`` compares tensors, ``answers`` whole answers, including streams and
failures. Both work piece by piece in bounded memory, so that they can run in a thread next to the event loop.
"""

from interlingua.translator.diff.answers import AnswerDiff, compare_answers
from interlingua.translator.diff.tensors import Fault, TensorDiff, Tolerance, compare_tensors

__all__ = ["AnswerDiff", "Fault", "TensorDiff", "Tolerance", "compare_answers", "compare_tensors"]
