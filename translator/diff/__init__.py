"""How two answers to one request differ: the numbers, the shapes, what is missing, what failed.

Pure: no I/O, no clock. ``tensors`` compares tensors, ``answers`` whole answers, streams and failures among
them. Both take memory for a piece of a tensor at a time, however large it is, so that they can run beside the
event loop.
"""

from interlingua.translator.diff.answers import Answer, AnswerDiff, compare_answers
from interlingua.translator.diff.tensors import Fault, TensorDiff, Tolerance, compare_tensors

__all__ = [
    "Answer",
    "AnswerDiff",
    "Fault",
    "TensorDiff",
    "Tolerance",
    "compare_answers",
    "compare_tensors",
]
