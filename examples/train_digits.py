"""Trains the example model ``digits`` and writes it, its configuration and the held-out samples.

The data are scikit-learn's copy of "Optical Recognition of Handwritten Digits" (1797 real 8x8 images,
pixel values 0 to 16). A fifth of them, the same number of each digit, is never shown to the training
and decides the accuracy that is printed at the end, measured on the exported file by ONNX Runtime.

    pip install 'interlingua[onnx,examples]'
    python examples/train_digits.py

The split and the training are seeded: the same versions of NumPy and scikit-learn on the same kind of
machine write the same file again. Exit code 1 below 95 % accuracy.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

EXAMPLES = Path(__file__).parent
MODEL = EXAMPLES / "models" / "digits"
SAMPLES = EXAMPLES / "digits"

LABELS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SHOWN = ("zero", "three", "seven")
LEAST_ACCURACY = 0.95
BRIGHTEST = 16

# dims leave out the batch: clients send image [N,64] and receive label [N,1] and probabilities [N,10]
CONFIG = """\
name: "digits"
backend: "onnxruntime"
platform: "onnxruntime_onnx"
max_batch_size: 64
input [ { name: "image" data_type: TYPE_FP32 dims: [ 64 ] } ]
output [
  { name: "label" data_type: TYPE_INT64 dims: [ 1 ] },
  { name: "probabilities" data_type: TYPE_FP32 dims: [ 10 ] label_filename: "labels.txt" }
]
"""


def main() -> int:
    digits = load_digits()
    images = digits.data.astype(np.float32)
    train_x, test_x, train_y, test_y = train_test_split(
        images, digits.target.astype(np.int64), test_size=0.2, stratify=digits.target, random_state=0
    )
    network = MLPClassifier(hidden_layer_sizes=(96,), alpha=0.01, max_iter=400, random_state=0)
    network.fit(train_x / BRIGHTEST, train_y)

    (MODEL / "1").mkdir(parents=True, exist_ok=True)
    SAMPLES.mkdir(exist_ok=True)
    model = exported(network.coefs_, network.intercepts_)
    (MODEL / "1" / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    (MODEL / "config.pbtxt").write_text(CONFIG)
    (MODEL / "labels.txt").write_text("".join(f"{label}\n" for label in LABELS))
    np.savez_compressed(SAMPLES / "holdout.npz", images=test_x, labels=test_y)
    for name in SHOWN:
        image = test_x[test_y == LABELS.index(name)][:1]
        np.save(SAMPLES / f"{name}.npy", image)
        (SAMPLES / f"{name}.pgm").write_text(portable_graymap(image))

    session = ort.InferenceSession(MODEL / "1" / "model.onnx", providers=["CPUExecutionProvider"])
    (labels,) = session.run(["label"], {"image": test_x})
    right = int((labels[:, 0] == test_y).sum())
    accuracy = right / len(test_y)
    print(f"{right} of {len(test_y)} held-out digits read correctly ({accuracy:.1%})")
    return 0 if accuracy >= LEAST_ACCURACY else 1


def exported(weights: list[np.ndarray], biases: list[np.ndarray]) -> ModelProto:
    """The trained perceptron as ONNX: scaling, one hidden layer, softmax, and the most likely class.

    ``label`` keeps a dimension of its own, [N,1], because a server that batches splits every output
    along the first dimension and describes what is left as the output's dims.
    """
    constants = {
        "brightest": np.float32(BRIGHTEST),
        "hidden_weight": without_denormals(weights[0]),
        "hidden_bias": biases[0],
        "class_weight": without_denormals(weights[1]),
        "class_bias": biases[1],
    }
    graph = helper.make_graph(
        [
            helper.make_node("Div", ["image", "brightest"], ["scaled"]),
            helper.make_node("Gemm", ["scaled", "hidden_weight", "hidden_bias"], ["hidden"]),
            helper.make_node("Relu", ["hidden"], ["active"]),
            helper.make_node("Gemm", ["active", "class_weight", "class_bias"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
            helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=1),
        ],
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 64])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, ["N", 1]),
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 10]),
        ],
        [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model, full_check=True)
    return model


def without_denormals(weights: np.ndarray) -> np.ndarray:
    """``weights`` with zero for those that are denormal numbers in FP32. The training shrinks the weights of
    pixels that are always dark with every step; a product with a denormal number takes a processor a hundred
    times as long as others."""
    return np.where(np.abs(weights) < np.finfo(np.float32).tiny, 0, weights)


def portable_graymap(image: np.ndarray) -> str:
    """An 8x8 image as a PGM file in its text form: every image viewer and every editor shows it."""
    rows = image.reshape(8, 8).astype(int).tolist()
    return "P2\n8 8\n16\n" + "".join(" ".join(f"{pixel:2}" for pixel in row) + "\n" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
