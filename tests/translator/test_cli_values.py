"""Values from the command line as tensors, and answers as text, JSON and .npz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import orjson
import pytest

from interlingua.schemas import Datatype, InferResponse, Tensor
from interlingua.translator.cli.arguments import RefusedError
from interlingua.translator.cli.values import as_json, as_text, read_tensor, write_npz


def answer(*tensors: Tensor) -> InferResponse:
    return InferResponse("m", tensors, version="3")


def tensor(array: Any, name: str = "y", datatype: Datatype | None = None) -> Tensor:
    return Tensor.from_numpy(name, np.asarray(array), datatype)


@pytest.mark.parametrize(
    ("text", "datatype", "expected"),
    [
        ("[[1,2],[3,4]]", Datatype.INT32, np.array([[1, 2], [3, 4]], "<i4")),
        ("5", Datatype.UINT8, np.array(5, "u1")),
        ("[]", Datatype.FP32, np.zeros((0,), "<f4")),
        ("[[],[]]", Datatype.INT8, np.zeros((2, 0), "i1")),
        ("[18446744073709551615]", Datatype.UINT64, np.array([2**64 - 1], "<u8")),
        ("[-9223372036854775808]", Datatype.INT64, np.array([-(2**63)], "<i8")),
        ("[1, 0.1]", Datatype.FP32, np.array([1, 0.1], "<f4")),
        ("[65504]", Datatype.FP16, np.array([65504], "<f2")),
        ("[1.5]", Datatype.BF16, np.array([1.5], ml_dtypes.bfloat16)),
        ("[true,false]", Datatype.BOOL, np.array([True, False])),
    ],
)
def test_json(text: str, datatype: Datatype, expected: np.ndarray) -> None:
    made = read_tensor("x", text, datatype)
    assert (made.name, made.datatype, made.shape) == ("x", datatype, expected.shape)
    assert made.numpy().tobytes() == expected.tobytes()


def test_json_text() -> None:
    made = read_tensor("x", '[["a"],["ü"]]', Datatype.BYTES)
    assert made.shape == (2, 1)
    assert made.elements() == [b"a", "ü".encode()]
    assert read_tensor("x", '"a"', Datatype.BYTES).shape == ()


@pytest.mark.parametrize(
    ("text", "datatype", "complaint"),
    [
        ("[1,", Datatype.INT8, "input 'x' is neither @file.npy nor JSON"),
        ("[NaN]", Datatype.FP32, "neither"),
        ("[[1],[2,3]]", Datatype.INT8, "input 'x': lists on one level differ in length"),
        ("[[1],2]", Datatype.INT8, "differ in length"),
        ("[1,[2]]", Datatype.INT8, "differ in depth"),
        ("[1.0]", Datatype.INT32, "input 'x': 1.0 is not a whole number, as INT32 needs"),
        ("[true]", Datatype.INT32, "true is not a whole number"),
        ("[128]", Datatype.INT8, "input 'x': 128 is out of the range of INT8"),
        ("[-1]", Datatype.UINT64, "-1 is out of the range of UINT64"),
        ("[18446744073709551616]", Datatype.UINT64, "is not a whole number"),
        ("[65520]", Datatype.FP16, "65520 is out of the range of FP16"),
        ("[1e39]", Datatype.FP32, "out of the range of FP32"),
        ('["1"]', Datatype.FP32, "input 'x': \"1\" is not a number, as FP32 needs"),
        ("[null]", Datatype.FP32, "null is not a number"),
        ("[1]", Datatype.BOOL, "1 is not true or false"),
        ("[1]", Datatype.BYTES, "1 is not text"),
        ("[1]", None, "the server does not report its datatype"),
        ("{}", Datatype.INT8, "{} is not a whole number"),
    ],
)
def test_json_that_does_not_fit(text: str, datatype: Datatype | None, complaint: str) -> None:
    with pytest.raises(RefusedError) as raised:
        read_tensor("x", text, datatype)
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("stored", "datatype", "expected"),
    [
        (np.array([1.5, -2], "<f4"), Datatype.FP32, np.array([1.5, -2], "<f4")),
        (np.array([1.5, np.nan], "<f8"), Datatype.FP32, np.array([1.5, np.nan], "<f4")),
        (np.array([1, 2], ">i4"), Datatype.INT32, np.array([1, 2], "<i4")),
        (np.array([0, 1], "u1"), Datatype.BOOL, np.array([False, True])),
        (np.array([3.0]), Datatype.UINT8, np.array([3], "u1")),
        (np.array([1.5], ml_dtypes.bfloat16).view("V2"), Datatype.BF16, np.array([1.5], ml_dtypes.bfloat16)),
        (np.array([7], "<i8"), None, np.array([7], "<i8")),
        (np.asfortranarray(np.arange(6.0).reshape(2, 3)), Datatype.FP64, np.arange(6.0).reshape(2, 3)),
    ],
)
def test_files(tmp_path: Path, stored: np.ndarray, datatype: Datatype | None, expected: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", stored)
    made = read_tensor("x", f"@{tmp_path}/x.npy", datatype)
    assert made.shape == expected.shape
    assert made.numpy().dtype == expected.dtype
    assert made.numpy().tobytes() == expected.tobytes()


def test_a_file_of_strings(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([["a", "bc"]]))
    assert read_tensor("x", f"@{tmp_path}/x.npy", Datatype.BYTES).elements() == [b"a", b"bc"]


@pytest.mark.parametrize(
    ("stored", "datatype", "complaint"),
    [
        (np.array([0.1]), Datatype.FP32, "input 'x': the file's float64 values do not fit the model's FP32"),
        (np.array([2], "u1"), Datatype.BOOL, "do not fit"),
        (np.array([np.nan]), Datatype.INT32, "do not fit"),
        (np.array([300]), Datatype.UINT8, "do not fit"),
        (np.array(["a"]), Datatype.FP32, "do not fit"),
        (np.array([1]), Datatype.BYTES, "do not fit"),
        (np.array([1j]), Datatype.FP32, "input 'x': no datatype stores the complex128"),
    ],
)
def test_files_that_do_not_fit(
    tmp_path: Path, stored: np.ndarray, datatype: Datatype, complaint: str
) -> None:
    np.save(tmp_path / "x.npy", stored)
    with pytest.raises(RefusedError) as raised:
        read_tensor("x", f"@{tmp_path}/x.npy", datatype)
    assert complaint in str(raised.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "zip.npz").write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "text.npy").write_text("1 2 3")
    (tmp_path / "empty.npy").touch()
    np.save(tmp_path / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "several.npz", a=np.zeros(1))
    for name in ("text.npy", "empty.npy", "object.npy", "missing.npy", "several.npz", "zip.npz"):
        with pytest.raises(RefusedError, match=f"input 'x': .*{name}"):
            read_tensor("x", f"@{tmp_path}/{name}", None)


def test_text() -> None:
    shown = as_text(answer(tensor(np.array([[1, 2]], "<i4")), tensor(np.array([b"a\xff", b"b"], object), "")))
    assert shown == "y  INT32 [1, 2]\n[[1 2]]\n\n(unnamed)  BYTES [2]\n[b'a\\xff' 'b']\n"
    assert "..." in as_text(answer(tensor(np.zeros(5000, "<f4"))))


def test_json_output() -> None:
    shown = as_json(
        answer(
            tensor(np.array([[0.5, 2]], "<f2")),
            tensor(np.array([1.5], ml_dtypes.bfloat16), "b"),
            tensor(np.array([2**64 - 1], "<u8"), "u"),
            tensor(np.array(["ü"], object), "s"),
            tensor(np.array(True), "t"),
        )
    )
    assert shown.endswith("}\n")
    assert orjson.loads(shown) == {
        "model_name": "m",
        "model_version": "3",
        "outputs": [
            {"name": "y", "datatype": "FP16", "shape": [1, 2], "data": [[0.5, 2.0]]},
            {"name": "b", "datatype": "BF16", "shape": [1], "data": [1.5]},
            {"name": "u", "datatype": "UINT64", "shape": [1], "data": [2**64 - 1]},
            {"name": "s", "datatype": "BYTES", "shape": [1], "data": ["ü"]},
            {"name": "t", "datatype": "BOOL", "shape": [], "data": True},
        ],
    }


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (np.array([1, np.nan], "<f4"), "output 'y' has NaN or infinities"),
        (np.array([np.inf], ml_dtypes.bfloat16), "output 'y' has NaN or infinities"),
        (np.array([b"\xff"], object), "is not UTF-8"),
    ],
)
def test_what_json_cannot_carry(array: np.ndarray, complaint: str) -> None:
    with pytest.raises(RefusedError) as raised:
        as_json(answer(tensor(array)))
    assert complaint in str(raised.value)


def test_npz(tmp_path: Path) -> None:
    half = np.array([1.5, np.nan], ml_dtypes.bfloat16)
    write_npz(
        f"{tmp_path}/y.npz",
        answer(
            tensor(np.array([[1, 2]], "<i4"), "file"),
            tensor(half, "half"),
            tensor(np.array([[b"a", b"\xffb"]], object), "text"),
            tensor(np.zeros((0, 2), "<f4"), ""),
        ),
    )
    with np.load(tmp_path / "y.npz") as read:
        assert set(read) == {"file", "half", "text", "3"}
        assert read["file"].tolist() == [[1, 2]]
        assert read["half"].view(ml_dtypes.bfloat16).tobytes() == half.tobytes()
        assert read["text"].tolist() == [[b"a", b"\xffb"]]
        assert read["3"].shape == (0, 2)


def test_npz_refuses_what_it_would_lose(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="ends in NUL"):
        write_npz(f"{tmp_path}/y.npz", answer(tensor(np.array([b"a\0"], object))))
    assert not (tmp_path / "y.npz").exists()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("x.json", 'JSON goes on the command line: --input X="$(cat {path})"'),
        ("x.csv", "numpy.save('x.npy', numpy.loadtxt('{path}', delimiter=','))"),
        ("x.TXT", "numpy.save('x.npy', numpy.loadtxt('{path}'))"),
        ("x.pgm", "decode the image into the array that the model takes"),
        ("x.bin", "write it with numpy.save"),
        ("x", "write it with numpy.save"),
    ],
)
def test_a_file_of_another_kind_is_answered_with_what_to_do(tmp_path: Path, name: str, advice: str) -> None:
    """Never with NumPy's own advice, which is to let the file run programs."""
    path = tmp_path / name
    path.write_text("[[1, 2], [3, 4]]")
    with pytest.raises(RefusedError) as raised:
        read_tensor("X", f"@{path}", Datatype.FP32)
    said = str(raised.value)
    assert said.startswith(f"input 'X': '{path}' is not an .npy file; ") and advice.format(path=path) in said
    assert "pickle" not in said


def test_an_array_of_objects_is_refused_in_our_own_words(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(RefusedError, match="it holds Python objects; save an array of numbers or of text$"):
        read_tensor("X", f"@{tmp_path}/x.npy", None)
