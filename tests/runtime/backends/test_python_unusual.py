"""Models written in Python that do what most do not: odd arrays, exits, forks, threads, modules of any name."""

from __future__ import annotations

import logging
import textwrap
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from interlingua.runtime.repository.files import load_model
from interlingua.schemas import Datatype, ErrorCode, InferRequest, Tensor
from tests.runtime.python_models import (
    ECHO,
    INT32,
    failure,
    instance,
    loaded,
    numbers,
    python_model,
    request,
    worker,
)
from tests.waiting import until

STRINGS = INT32.replace("TYPE_INT32", "TYPE_STRING")

# --- arrays


@pytest.mark.parametrize(
    ("made", "strings"),
    [
        ("np.array(['é', 'b'], object)", ["é".encode(), b"b"]),
        ("np.array([b'\\xff\\x00', ''], object)", [b"\xff\x00", b""]),
        ("np.array([1, None], object)", [b"1", b"None"]),
        ("np.array(['ab', 'c'])", [b"ab", b"c"]),
        ("np.array([b'ab', b'c'])", [b"ab", b"c"]),
        ("np.array([[b'a', b'b'], [b'c', b'd']], object).T", [b"a", b"c", b"b", b"d"]),
        ("np.array([], object)", []),
        ("np.array(b'alone', object)", [b"alone"]),
    ],
)
async def test_strings(tmp_path: Path, made: str, strings: list[bytes]) -> None:
    body = f"def execute(self, requests):\n    return [pb.InferenceResponse([pb.Tensor('OUT', {made})])]"
    model = loaded(tmp_path, body, STRINGS)
    response = await model.infer(
        InferRequest("m", (Tensor.from_numpy("IN", np.array([b"x"], object), Datatype.BYTES),))
    )
    assert response.outputs[0].elements() == strings
    await model.close()


@pytest.mark.parametrize(
    ("made", "shape", "values"),
    [
        ("np.arange(6, dtype='>i4').reshape(2, 3)", (2, 3), [0, 1, 2, 3, 4, 5]),
        ("np.arange(6, dtype=np.int32).reshape(2, 3).T", (3, 2), [0, 3, 1, 4, 2, 5]),
        ("np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3))", (2, 3), [0, 1, 2, 3, 4, 5]),
        ("np.arange(9, dtype=np.int32)[::-3]", (3,), [8, 5, 2]),
        ("np.broadcast_to(np.int32(7), (2, 2))", (2, 2), [7, 7, 7, 7]),
        ("np.array(5, np.int32)", (), [5]),
        ("np.zeros((0, 3), np.int32)", (0, 3), []),
    ],
)
async def test_arrays_in_any_order(
    tmp_path: Path, made: str, shape: tuple[int, ...], values: list[int]
) -> None:
    body = f"def execute(self, requests):\n    return [pb.InferenceResponse([pb.Tensor('OUT', {made})])]"
    model = loaded(tmp_path, body)
    (output,) = (await model.infer(request(1))).outputs
    assert output.shape == shape
    assert output.numpy().ravel().tolist() == values
    await model.close()


@pytest.mark.parametrize("count", [0, 5, 40_000])
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)], ids=str)
async def test_halves_by_dlpack(tmp_path: Path, dtype: np.dtype[np.generic], count: int) -> None:
    body = """
    def execute(self, requests):
        tensor = pb.get_input_tensor_by_name(requests[0], "IN")
        return [pb.InferenceResponse([pb.Tensor.from_dlpack("OUT", tensor.to_dlpack())])]
    """
    kind = "FP16" if dtype == np.float16 else "BF16"
    model = loaded(tmp_path, body, INT32.replace("TYPE_INT32", f"TYPE_{kind}"))
    given = Tensor.from_numpy("IN", np.linspace(-2, 2, count).astype(dtype), Datatype[kind])
    assert (await model.infer(InferRequest("m", (given,)))).outputs == (given.renamed("OUT"),)
    await model.close()


async def test_missing_or_extra_outputs(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        more = [pb.Tensor("OUT", given(requests[0]))] * int(given(requests[0])[0])
        return [pb.InferenceResponse([pb.Tensor("WHAT", np.zeros(3)), *more])]
    """
    model = loaded(tmp_path, body)
    assert (await model.infer(request(0))).outputs == ()
    for count in (1, 2):
        assert numbers(await model.infer(request(count))) == [count]
    await model.close()


# --- the one response of a model that is not decoupled


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "sender.send(answer([1]))\nsender.send(answer([2]))",
            "Non-decoupled model cannot send more than one response",
        ),
        (
            "sender.send(flags=FINAL)",
            "Non-decoupled model cannot send complete final before sending a response",
        ),
        ("pass", "the model has let go of a request without a response"),
    ],
)
async def test_senders_of_one_response(tmp_path: Path, body: str, said: str) -> None:
    head = "def execute(self, requests):\n    sender = requests[0].get_response_sender()\n"
    model = loaded(tmp_path, head + textwrap.indent(body, "    "))
    error = await failure(model, request(0))
    assert error.code is ErrorCode.MODEL_FAILED
    assert said in error.message
    await model.close()


async def test_a_response_and_its_end_apart(tmp_path: Path) -> None:
    body = """
    def execute(self, requests):
        sender = requests[0].get_response_sender()
        sender.send(answer([3]))
        sender.send(flags=FINAL)
    """
    model = loaded(tmp_path, body)
    for _ in range(3):
        assert numbers(await model.infer(request(0))) == [3]
    await model.close()


# --- output, exits, processes, threads


async def test_what_it_prints_comes_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = """
    def execute(self, requests):
        print("hello")
        os.write(1, b"raw\\n")
        return [answer([1])]
    """
    model = loaded(tmp_path, body)
    await model.infer(request(0))
    assert capfd.readouterr().out == "hello\nraw\n"
    await model.close()


@pytest.mark.parametrize("how", ["sys.exit(3)", "raise SystemExit('enough')", "exit()"])
async def test_an_exit_is_a_failure_of_the_run(tmp_path: Path, how: str) -> None:
    body = f"""
    def execute(self, requests):
        import sys
        if given(requests[0])[0]:
            {how}
        return [answer([os.getpid()])]
    """
    model = loaded(tmp_path, body)
    error = await failure(model, request(1))
    assert error.code is ErrorCode.MODEL_FAILED
    assert "SystemExit: " in error.message
    assert numbers(await model.infer(request(0))) == [worker(model)._process.pid]
    await model.close()


@pytest.mark.parametrize("how", ["raise ValueError('no')", "import sys; sys.exit(1)", "os._exit(1)"])
async def test_a_failed_finalize_delays_no_unload(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = loaded(tmp_path, ECHO + f"\ndef finalize(self):\n    {how}")
    process = worker(model)._process
    assert numbers(await model.infer(request(4))) == [4]
    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        await model.close()
    assert time.monotonic() - began < 5
    assert process.returncode is not None
    assert not caplog.records


FORKS = {
    "fork": """
        child = os.fork()
        if child == 0:
            return [answer([-1])]
        os.waitpid(child, 0)
    """,
    "multiprocessing": """
        import multiprocessing
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0,))
        child.start()
        child.join()
    """,
    "left behind": """
        import subprocess
        subprocess.Popen(["sleep", "8"], close_fds=False)
        if os.fork() == 0:
            time.sleep(8)
    """,
}


@pytest.mark.parametrize("how", FORKS)
async def test_processes_of_its_own(tmp_path: Path, how: str) -> None:
    body = f"""
    def execute(self, requests):
        if given(requests[0])[0]:
{textwrap.indent(textwrap.dedent(FORKS[how]), " " * 12)}
        return [answer([os.getpid()])]

    def finalize(self):
        with open({str(tmp_path / "finalized")!r}, "a") as file:
            file.write(".")
    """
    model = loaded(tmp_path, body)
    number = worker(model)._process.pid
    assert numbers(await model.infer(request(1))) == [number]
    assert numbers(await model.infer(request(0))) == [number]
    if how == "left behind":
        # they must not keep the connection open
        worker(model)._process.kill()
        await until(lambda: instance(model)._workers[0] is None)
    await model.close()
    if how != "left behind":
        assert (tmp_path / "finalized").read_text() == "."


async def test_threads_that_never_end(tmp_path: Path) -> None:
    body = """
    def initialize(self, args):
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        while True:
            time.sleep(0.001)

    def execute(self, requests):
        return [answer([threading.active_count() > 1])]
    """
    model = loaded(tmp_path, body)
    assert numbers(await model.infer(request(0))) == [1]
    began = time.monotonic()
    await model.close()
    assert time.monotonic() - began < 5


# --- modules


async def test_modules_called_as_ours_are_its_own(tmp_path: Path) -> None:
    rooms = ("runtime", "protocols", "schemas", "translator")
    body = """
    def initialize(self, args):
        import runtime, protocols.part, schemas.part, translator, helper
        self.modules = [runtime, protocols.part, schemas.part, translator, helper.schemas.part]

    def execute(self, requests):
        # ours go on working: tensors big and small, errors, the log
        pb.Logger.log_info("fine")
        return [answer([module.VALUE for module in self.modules] + given(request).tolist()) for request in requests]
    """
    source = python_model(tmp_path, body)
    for number, room in enumerate(rooms):
        folder = tmp_path / "m" / "1" / room
        folder.mkdir()
        (folder / "__init__.py").write_text(f"VALUE = {number}")
        (folder / "part.py").write_text(f"VALUE = {number * 10}")
    (tmp_path / "m" / "helper.py").write_text("import schemas.part")
    model = load_model(source)
    for count in (1, 30_000):
        answered = numbers(await model.infer(request(*range(count))))
        assert answered == [0, 10, 20, 3, 20, *range(count)]
    await model.close()


async def test_relative_imports(tmp_path: Path) -> None:
    source = python_model(tmp_path, "from .sibling import execute")
    (tmp_path / "m" / "1" / "sibling.py").write_text(
        "import numpy as np\nimport triton_python_backend_utils as pb\n"
        "def execute(self, requests):\n"
        "    return [pb.InferenceResponse([pb.Tensor('OUT', np.array([8], np.int32))]) for _ in requests]\n"
    )
    model = load_model(source)
    assert numbers(await model.infer(request(0))) == [8]
    await model.close()
