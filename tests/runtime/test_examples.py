"""The example models as they are checked in: they all load, and they answer what they promise."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.repository.files import find_models, load_models
from interlingua.schemas import Datatype, InferenceError, InferRequest, Tensor, pack_bytes

EXAMPLES = Path(__file__).parents[2] / "examples"
IDENTITIES = {f"identity_{datatype.value.lower()}": datatype for datatype in Datatype}


@pytest_asyncio.fixture
async def models() -> AsyncIterator[dict[str, LocalModel]]:
    loaded = load_models(find_models(EXAMPLES / "models"))
    assert not loaded.failed
    yield loaded.models
    for model in loaded.models.values():
        await model.close()


@pytest_asyncio.fixture
async def chat() -> AsyncIterator[LocalModel]:
    loaded = load_models(find_models(EXAMPLES / "http_models"))
    assert not loaded.failed
    yield loaded.models["chat"]
    await loaded.models["chat"].close()


async def ask(model: LocalModel, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    tensors = tuple(Tensor.from_numpy(name, array) for name, array in inputs.items())
    response = await model.infer(InferRequest(model.name, tensors))
    return {tensor.name: tensor.numpy() for tensor in response.outputs}


def test_every_datatype_has_an_identity() -> None:
    folders = {folder.name for folder in (EXAMPLES / "models").iterdir()}
    assert {
        *IDENTITIES,
        "digits",
        "simple",
        "simple_string",
        "classy",
        "add_sub",
        "multi_ver",
        "words",
        "number",
    } == folders


async def test_digits_reads_what_it_never_saw(models: dict[str, LocalModel]) -> None:
    with np.load(EXAMPLES / "digits" / "holdout.npz") as holdout:
        images, labels = holdout["images"], holdout["labels"]
    right = 0
    for start in range(0, len(images), 64):
        outputs = await ask(models["digits"], image=images[start : start + 64])
        assert np.allclose(outputs["probabilities"].sum(axis=1), 1, atol=1e-5)
        assert (outputs["probabilities"].argmax(axis=1) == outputs["label"][:, 0]).all()
        right += int((outputs["label"][:, 0] == labels[start : start + 64]).sum())
    assert len(images) == 360
    assert right / len(images) >= 0.95


async def test_single_digits(models: dict[str, LocalModel]) -> None:
    words = (await models["digits"].signature()).output_names["probabilities"].labels
    for word in ("zero", "three", "seven"):
        image = np.load(EXAMPLES / "digits" / f"{word}.npy")
        (label,) = (await ask(models["digits"], image=image))["label"][0]
        assert words[label] == word
        header, pixels = (EXAMPLES / "digits" / f"{word}.pgm").read_text().split("16\n", 1)
        assert header == "P2\n8 8\n"
        assert [int(pixel) for pixel in pixels.split()] == image.ravel().tolist()


async def test_sums_and_differences(models: dict[str, LocalModel]) -> None:
    first, second = np.arange(32, dtype=np.int32).reshape(2, 16), np.full((2, 16), 3, np.int32)
    outputs = await ask(models["simple"], INPUT0=first, INPUT1=second)
    assert (outputs["OUTPUT0"] == first + second).all()
    assert (outputs["OUTPUT1"] == first - second).all()
    outputs = await ask(models["add_sub"], INPUT0=np.float32([1.5]), INPUT1=np.float32([0.25]))
    assert (outputs["OUTPUT0"].tolist(), outputs["OUTPUT1"].tolist()) == ([1.75], [1.25])


async def test_sums_of_text(models: dict[str, LocalModel]) -> None:
    first = np.array([[str(number).encode() for number in range(16)]], object)
    second = np.array([[b"-3", b"9007199254740993", *[b"1"] * 14]], object)
    outputs = await ask(models["simple_string"], INPUT0=first, INPUT1=second)
    assert outputs["OUTPUT0"][0].tolist()[:3] == [b"-3", b"9007199254740994", b"3"]
    assert outputs["OUTPUT1"][0].tolist()[:3] == [b"3", b"-9007199254740992", b"1"]


async def test_scores_with_labels(models: dict[str, LocalModel]) -> None:
    scores = np.arange(10, dtype=np.float32).reshape(2, 5)
    assert ((await ask(models["classy"], DATA=scores))["PROB"] == scores).all()
    signature = await models["classy"].signature()
    assert signature.output_names["PROB"].labels == ("ant", "bee", "cat", "dog", "elk")
    assert signature.max_batch_size == 4


@pytest.mark.parametrize(("name", "datatype"), IDENTITIES.items())
async def test_identities(models: dict[str, LocalModel], name: str, datatype: Datatype) -> None:
    data = pack_bytes([b"\xff\x00", b""]) if datatype is Datatype.BYTES else b"\x01\x00" * datatype.itemsize
    tensor = Tensor.checked("INPUT0", datatype, [2], data)
    (output,) = (await models[name].infer(InferRequest(name, (tensor,)))).outputs
    assert (output.name, output.datatype, output.shape) == ("OUTPUT0", datatype, (2,))
    assert bytes(output.view) == data


async def test_three_versions(models: dict[str, LocalModel]) -> None:
    model = models["multi_ver"]
    assert (await model.metadata()).versions == ("1", "3", "7")
    tensor = Tensor.from_numpy("INPUT0", np.arange(2, dtype=np.int32))
    ran = [
        (await model.infer(InferRequest("multi_ver", (tensor,), version=v))).version for v in ("", "1", "3")
    ]
    assert ran == ["7", "1", "3"]


async def test_a_number_is_read_digit_by_digit(models: dict[str, LocalModel]) -> None:
    catalog = ModelCatalog(models)
    with np.load(EXAMPLES / "digits" / "holdout.npz") as holdout:
        images = holdout["images"][:12]
    (number,) = (await catalog.find("number").infer(_images(images))).outputs
    label = (await ask(models["digits"], image=images))["label"]
    assert number.elements() == ["".join(str(digit) for digit in label.ravel()).encode()]
    # more than digits takes at once
    with pytest.raises(InferenceError, match="must be <= 64 for 'digits'"):
        await catalog.find("number").infer(_images(np.zeros((65, 64), np.float32)))


def _images(array: np.ndarray) -> InferRequest:
    return InferRequest("number", (Tensor.from_numpy("images", array),))


async def test_words_come_one_by_one(models: dict[str, LocalModel]) -> None:
    text = Tensor.checked("TEXT", Datatype.BYTES, [1], pack_bytes([b"one after another"]))
    responses = [response async for response in models["words"].stream(InferRequest("words", (text,)))]
    words = [response.outputs[0].elements() for response in responses if response.outputs]
    assert words == [[b"one"], [b"after"], [b"another"]]
    assert [dict(response.parameters) for response in responses] == [*({"place": n} for n in range(3)), {}]
    assert [response.final for response in responses] == [False, False, False, True]


@pytest.mark.parametrize(
    ("body", "chunks"),
    [
        (
            b'{"stream": true, "messages": [{"content": "hello you"}]}',
            [
                b'data: {"choices": [{"index": 0, "delta": {"content": "hello"}}]}\n\n',
                b'data: {"choices": [{"index": 0, "delta": {"content": "you"}}]}\n\n',
                b"data: [DONE]\n\n",
            ],
        ),
        (
            b'{"messages": [{"content": "hello you"}]}',
            [b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "hello you"}}]}'],
        ),
        (
            b"hello",
            [
                b'{"error": {"message": "the body is no chat: '
                b"JSONDecodeError('Expecting value: line 1 column 1 (char 0)')\"}}"
            ],
        ),
    ],
)
async def test_a_chat_says_the_last_message_again(chat: LocalModel, body: bytes, chunks: list[bytes]) -> None:
    asked = InferRequest("chat", (Tensor.from_numpy("http_body", np.array([body], object)),))
    responses = [response async for response in chat.stream(asked)]
    said = [tensor for response in responses for tensor in response.outputs if tensor.name == "http_body"]
    assert [tensor.elements()[0] for tensor in said] == chunks
