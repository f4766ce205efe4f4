"""Values from the command line as tensors, and answers as text, JSON and .npz."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import orjson
import pytest
from PIL import Image

from interlingua.schemas import Datatype, InferResponse, Tensor, TensorSpec
from interlingua.translator.cli.arguments import Pixels, RefusedError
from interlingua.translator.cli.inputs import read_input
from interlingua.translator.cli.results import write_file
from interlingua.translator.cli.values import as_json, as_text, write_npz

PIXELS = Pixels()


def read_tensor(
    name: str, text: str, datatype: Datatype | None, *shape: int, pixels: Pixels = PIXELS
) -> Tensor:
    """The input of a model that takes ``datatype`` and ``shape``."""
    spec = None if datatype is None else TensorSpec(name, datatype, shape)
    return read_input(name, text, spec, pixels)


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


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_archives_are_one_error(save: Any, tmp_path: Path) -> None:
    save(tmp_path / "x.npz", x=np.arange(4))
    whole, chance = (tmp_path / "x.npz").read_bytes(), random.Random(1)
    refused = set()
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(chance.choice((1, 2, 5))):
            damaged[chance.randrange(4, len(damaged))] = chance.randrange(256)
        (tmp_path / "x.npz").write_bytes(
            damaged[: chance.choice((len(damaged), chance.randrange(4, len(damaged))))]
        )
        try:
            read_tensor("x", f"@{tmp_path}/x.npz", None)
        except RefusedError as error:
            refused.add(str(error).partition("npz: ")[2][:20])
    assert len(refused) > 3


def npy(header: str, version: bytes = b"\1\0", data: bytes = bytes(8)) -> bytes:
    text = f"{header}\n".encode()
    return b"\x93NUMPY" + version + len(text).to_bytes(2 if version == b"\1\0" else 4, "little") + text + data


def described(shape: str, descr: str = "'<f4'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}"


MALFORMED = {
    "728 TiB": (
        npy(described("(200000000000000,)")),
        "states 800000000000000 bytes of data, and 8 are there",
    ),
    "cut": (npy(described("(3,)")), "states 12 bytes of data, and 8 are there"),
    "beyond a C long": (npy(described(f"(0, {10**30})")), ""),
    "negative": (npy(described("(-1,)")), ""),
    "no size": (npy(described(f"({10**12},)", "'|S0'")), "states 1000000000000 bytes of data"),
    "wide": (npy(described("(1,)", f"'|S{10**30}'")), ""),
    "bracket": (npy(described("(2,")), ""),
    "nested": (npy("(" * 9000), ""),
    "descr": (npy(described("(2,)", "[()]")), ""),
    "no dict": (npy("[]"), ""),
    "magic alone": (b"\x93NUMPY", ""),
    "version 2": (npy(described("(9,)"), b"\2\0"), "states 36 bytes of data, and 8 are there"),
    "version 3": (
        npy(described("(2,)"), b"\3\0"),
        "version 3.0 of the format, which no array of a datatype has",
    ),
    "version 9": (npy(described("(2,)"), b"\x09\0"), "version 9.0 of the format"),
    "object": (
        npy(described("(1,)", "'|O'")),
        "it holds Python objects; save an array of numbers or of text",
    ),
}
"""Files of NumPy that are none, and a part of the reason."""


@pytest.mark.parametrize(("content", "reason"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_npy_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(RefusedError) as raised:
        read_tensor("x", f"@{path}", Datatype.FP32)
    assert str(raised.value).startswith(f"input 'x': '{path}' cannot be read as .npy: ")
    assert reason in str(raised.value)


def test_versions_orders_and_no_elements_of_npy(tmp_path: Path) -> None:
    for version in ((1, 0), (2, 0)):
        for array in (np.zeros((0, 3), "<f4"), np.asfortranarray(np.eye(2, 3, dtype="<f4"))):
            with (tmp_path / "x.npy").open("wb") as file:
                np.lib.format.write_array(file, array, version)
            made = read_tensor("x", f"@{tmp_path}/x.npy", Datatype.FP32).numpy()
            assert made.shape == array.shape and np.array_equal(made, array)


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


@pytest.mark.parametrize("name", ["x.bin", "x"])
def test_a_file_of_another_kind_is_answered_with_what_to_do(tmp_path: Path, name: str) -> None:
    """Never with NumPy's own advice, which is to let the file run programs."""
    path = tmp_path / name
    path.write_text("[[1, 2], [3, 4]]")
    with pytest.raises(RefusedError) as raised:
        read_tensor("X", f"@{path}", Datatype.FP32)
    said = str(raised.value)
    assert (
        said.startswith(f"input 'X': '{path}' is not an .npy file; ") and "write it with numpy.save" in said
    )
    assert "pickle" not in said


@pytest.mark.parametrize(
    ("name", "content", "datatype", "shape", "expected"),
    [
        ("x.json", "[[1, 2], [3, 4]]", Datatype.INT8, (-1, 2), np.array([[1, 2], [3, 4]], "i1")),
        ("x.csv", "1,2\n3,4.5\n", Datatype.FP32, (-1, 2), np.array([[1, 2], [3, 4.5]], "<f4")),
        ("x.csv", "a,b\n1,2\n", Datatype.FP64, (-1, 2), np.array([[1, 2]], "<f8")),
        ("x.csv", "18446744073709551615\r\n1\r\n", Datatype.UINT64, (-1,), np.array([2**64 - 1, 1], "<u8")),
        # the byte order mark that some programs write
        ("x.csv", "\ufeff1,2\n", Datatype.FP32, (-1, 2), np.array([[1, 2]], "<f4")),
        ("x.json", "\ufeff[1, 2]", Datatype.INT8, (-1,), np.array([1, 2], "i1")),
        ("x.csv", "1\n0\n", Datatype.BOOL, (-1,), np.array([True, False])),
        ("x.CSV", "1,2\n", None, (), np.array([[1, 2]], "<f8")),
        ("x.TXT", "1 2\n3 4\n", Datatype.INT32, (-1, 2), np.array([[1, 2], [3, 4]], "<i4")),
    ],
)
def test_files_of_numbers_in_text(
    tmp_path: Path,
    name: str,
    content: str,
    datatype: Datatype | None,
    shape: tuple[int, ...],
    expected: np.ndarray,
) -> None:
    (tmp_path / name).write_bytes(content.encode())
    made = read_tensor("x", f"@{tmp_path}/{name}", datatype, *shape)
    assert (made.shape, made.numpy().dtype) == (expected.shape, expected.dtype)
    assert made.numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("name", "content", "datatype", "complaint"),
    [
        ("x.json", b"[1,", Datatype.INT8, "input 'x' is not JSON"),
        ("x.csv", b"1,2\n3\n", Datatype.FP32, "input 'x': rows differ in length"),
        ("x.csv", b"1,a\n", Datatype.FP32, "input 'x': 'a' is not a number"),
        ("x.csv", b"1.5\n", Datatype.INT32, "input 'x': 1.5 is not a whole number, as INT32 needs"),
        ("x.csv", b"2\n", Datatype.BOOL, "input 'x': 2 is neither 0 nor 1"),
        ("x.csv", b"1e39\n", Datatype.FP32, "out of the range of FP32"),
        ("x.txt", b"\xff", Datatype.BYTES, "x.txt' is not UTF-8"),
        (
            "x.png",
            b"\x89PNG and no more",
            Datatype.UINT8,
            "'x.png' cannot be read as an image: unknown format\n",
        ),
        ("x.json", b'{"x": [' + b"1," * 99 + b"1]}", Datatype.FP32, "1,1,1,... is not a number"),
    ],
)
def test_files_in_text_that_do_not_fit(
    tmp_path: Path, name: str, content: bytes, datatype: Datatype, complaint: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RefusedError) as raised:
        read_tensor("x", f"@{tmp_path}/{name}", datatype, -1, 2)
    assert complaint in f"{raised.value}\n"


def test_text_as_an_element(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("two\nlines\n")
    made = read_tensor("x", f"@{tmp_path}/x.txt", Datatype.BYTES, -1, 1)
    assert (made.shape, made.elements()) == ((1, 1), [b"two\nlines"])
    assert read_tensor("x", "Hello, world", Datatype.BYTES, -1).elements() == [b"Hello, world"]
    (tmp_path / "x.csv").write_text('a,"b,c"\n')
    assert read_tensor("x", f"@{tmp_path}/x.csv", Datatype.BYTES, -1, 2).elements() == [b"a", b"b,c"]


def test_an_array_of_several(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([1, 2], "<i4"), y=np.zeros(1))
    assert read_tensor("x", f"@{tmp_path}/x.npz", Datatype.FP32).numpy().tolist() == [1, 2]


RED = np.zeros((2, 5, 3), "u1") + np.array([255, 0, 51], "u1")
"""Two rows of five pixels."""


@pytest.mark.parametrize(
    ("datatype", "shape", "expected"),
    [
        (Datatype.UINT8, (-1, 2, 5, 3), RED[None]),
        (Datatype.UINT8, (-1, 3, -1, -1), RED.transpose(2, 0, 1)[None]),
        (Datatype.INT32, (1, -1, -1, 3), RED[None].astype("<i4")),
        (Datatype.FP32, (3, 2, -1), (RED.transpose(2, 0, 1) / 255).astype("<f4")),
        (Datatype.FP16, (-1, -1, 3), (RED / 255).astype("<f2")),
        (None, (), RED),
    ],
)
def test_images(
    tmp_path: Path, datatype: Datatype | None, shape: tuple[int, ...], expected: np.ndarray
) -> None:
    Image.fromarray(RED).save(tmp_path / "x.png")
    made = read_tensor("x", f"@{tmp_path}/x.png", datatype, *shape, pixels=Pixels(0, 1))
    assert (made.shape, made.numpy().dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(made.numpy().astype("f8"), expected.astype("f8"), rtol=1e-3)


def test_an_image_gets_the_size_of_the_model(tmp_path: Path) -> None:
    Image.fromarray(RED).save(tmp_path / "x.bmp")
    assert read_tensor("x", f"@{tmp_path}/x.bmp", Datatype.UINT8, -1, 3, 8, 9).shape == (1, 3, 8, 9)
    assert read_tensor("x", f"@{tmp_path}/x.bmp", Datatype.UINT8, -1, 16, 12).shape == (1, 16, 12)
    assert read_tensor("x", f"@{tmp_path}/x.bmp", Datatype.FP32, -1, 64).shape == (1, 64)
    with pytest.raises(RefusedError, match="an image does not fit the shape"):
        read_tensor("x", f"@{tmp_path}/x.bmp", Datatype.UINT8, 5)


def test_an_image_of_digits() -> None:
    """The picture is the array that the training wrote."""
    examples = Path(__file__).parents[2] / "examples" / "digits"
    made = read_tensor("image", f"@{examples}/seven.pgm", Datatype.FP32, -1, 64, pixels=Pixels(0, 16))
    np.testing.assert_allclose(made.numpy(), np.load(examples / "seven.npy"), atol=0.05)


def test_an_encoded_image_is_an_element(tmp_path: Path) -> None:
    Image.fromarray(RED).save(tmp_path / "x.jpg")
    made = read_tensor("x", f"@{tmp_path}/x.jpg", Datatype.BYTES, -1, 1)
    assert (made.shape, made.elements()) == ((1, 1), [(tmp_path / "x.jpg").read_bytes()])


def test_images_need_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(RED).save(tmp_path / "x.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(RefusedError, match=r"images need Pillow: pip install 'interlingua\[images\]'"):
        read_tensor("x", f"@{tmp_path}/x.png", Datatype.UINT8, -1, 3, 2, 5)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (RED, RED),
        ((RED.transpose(2, 0, 1) / 255).astype("<f4")[None], RED),
        (np.array([[True, False], [False, True]]), np.array([[255, 0], [0, 255]], "u1")),
        (np.array([[0, 255.0], [7, 8]], "<f8"), np.array([[0, 255], [7, 8]], "u1")),
    ],
)
def test_a_picture_out(tmp_path: Path, array: np.ndarray, expected: np.ndarray) -> None:
    write_file(f"{tmp_path}/y.png", answer(tensor(array)))
    assert np.asarray(Image.open(tmp_path / "y.png")).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("name", "arrays", "complaint"),
    [
        ("y.png", [np.zeros(4)], "is no picture"),
        ("y.png", [np.full((2, 2), 300.0)], "values outside of 0 to 255"),
        ("y.png", [np.zeros((5, 2, 2))], "has no 1, 3 or 4 channels"),
        ("y.npy", [np.zeros(1), np.zeros(1)], "choose it with --output"),
    ],
)
def test_outputs_without_that_form(
    tmp_path: Path, name: str, arrays: list[np.ndarray], complaint: str
) -> None:
    with pytest.raises(RefusedError) as raised:
        write_file(f"{tmp_path}/{name}", answer(*(tensor(each, f"y{at}") for at, each in enumerate(arrays))))
    assert complaint in str(raised.value)


def test_an_array_and_json_out(tmp_path: Path) -> None:
    write_file(f"{tmp_path}/y.npy", answer(tensor(np.array([1, 2], "<i4"))))
    assert np.load(tmp_path / "y.npy").tolist() == [1, 2]
    write_file(f"{tmp_path}/y.json", answer(tensor(np.array([1, 2], "<i4"))))
    assert orjson.loads((tmp_path / "y.json").read_bytes())["outputs"][0]["data"] == [1, 2]


def test_an_array_of_objects_is_refused_in_our_own_words(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(RefusedError, match="it holds Python objects; save an array of numbers or of text$"):
        read_tensor("X", f"@{tmp_path}/x.npy", None)
