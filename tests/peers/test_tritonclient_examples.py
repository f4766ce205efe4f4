"""What tritonclient's published examples do, each as a program of its own: once against Triton, once against the
daemon under the name that the examples expect of a server, ``triton``.

Not among them: those about CUDA shared memory and vLLM, which need a GPU and that engine.
"""

from __future__ import annotations

import queue
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.utils.shared_memory as shm
from tritonclient import utils
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from tests.conformance.oip_client import EVERY, GRPC, WAIT_SECS, Client, Server, client_of, refused
from tests.peers.beside import Servers, beside
from tests.peers.example_models import LABELS, LOADED, write

pytestmark = [
    pytest.mark.peers,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning"),
]

RISING = np.arange(16, dtype=np.int32).reshape(1, 16)
ONES = np.ones((1, 16), np.int32)
VALUES = [11, 7, 5, 3, 2, 0, 1]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with beside(tmp_path_factory.mktemp("examples"), write) as running:
        yield running


@pytest.fixture(params=["triton", "daemon"])
def server(both: Servers, request: pytest.FixtureRequest) -> Server:
    return both[request.param]


@pytest.fixture
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[Client]:
    with client_of(request.param, server) as made:
        yield made


every = pytest.mark.parametrize("client", EVERY, indirect=True)
synchronous = pytest.mark.parametrize("client", ["http", "grpc"], indirect=True)


def check_sums(result: Any, first: Any = RISING, second: Any = ONES) -> None:
    assert np.array_equal(result.as_numpy("OUTPUT0"), first + second)
    assert np.array_equal(result.as_numpy("OUTPUT1"), first - second)


def addends(client: Client, second: Any = ONES, **how: Any) -> list[Any]:
    return [client.input("INPUT0", RISING, "INT32", **how), client.input("INPUT1", second, "INT32")]


def outputs(client: Client, **how: Any) -> list[Any]:
    return [client.output(name, **how) for name in ("OUTPUT0", "OUTPUT1")]


# --- health and metadata


@every
def test_health_and_metadata(client: Client) -> None:
    asked = (
        {"query_params": {"test_1": 1, "test_2": 2}}
        if client.over_http
        else {"headers": {"test": "1", "dummy": "2"}}
    )
    assert client.is_server_live(**asked)
    assert client.is_server_ready()
    assert client.is_model_ready("simple")
    assert client.get_server_metadata()["name"] == "triton"
    assert client.get_model_metadata("simple", **asked)["name"] == "simple"
    with refused("Request for unknown model"):
        client.get_model_metadata("wrong_model_name")
    config = client.get_model_config("simple")
    assert (config if client.over_http else config["config"])["name"] == "simple"


# --- inference


@pytest.mark.parametrize("coding", [None, "gzip", "deflate"])
@every
def test_infer(client: Client, coding: str | None) -> None:
    options: dict[str, Any] = {"headers": {"test": "1"}}
    if client.over_http:
        wanted = [client.output("OUTPUT0", binary_data=True), client.output("OUTPUT1", binary_data=False)]
        options |= {"query_params": {"test_1": 1}, "request_compression_algorithm": coding}
        if client.kind == "http":
            options["response_compression_algorithm"] = coding
        inputs = addends(client, binary_data=False)
    else:
        wanted, inputs = outputs(client), addends(client)
        options["compression_algorithm"] = coding
    check_sums(client.infer("simple", inputs, outputs=wanted, **options))
    assert len(client.get_inference_statistics("simple")["model_stats"]) == 1
    check_sums(client.infer("simple", inputs, outputs=None, **options))
    with refused("Request for unknown model"):
        client.infer("wrong_model_name", inputs)


def test_asynchronous_inference(server: Server) -> None:
    with client_of("http", server) as client:
        pending = [client.async_infer("simple", addends(client), outputs=outputs(client)) for _ in range(4)]
        for each in pending:
            check_sums(each.get_result())
    heard: queue.Queue[Any] = queue.Queue()
    with client_of("grpc", server) as client:
        client.async_infer(
            "simple",
            addends(client),
            callback=lambda result, error: heard.put(error or result),
            outputs=outputs(client),
        )
        check_sums(heard.get(timeout=WAIT_SECS))


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_a_client_for_each_inference(server: Server, transport: str) -> None:
    for _ in range(20):
        with client_of(transport, server) as client:
            check_sums(client.infer("simple", addends(client), outputs=outputs(client)))


@pytest.mark.parametrize(
    "options",
    [
        {
            "keepalive_options": tritonclient.grpc.KeepAliveOptions(
                keepalive_time_ms=2**31 - 1,
                keepalive_timeout_ms=20000,
                keepalive_permit_without_calls=False,
                http2_max_pings_without_data=2,
            )
        },
        {
            "channel_args": [
                ("grpc.max_send_message_length", 1 << 20),
                ("grpc.max_receive_message_length", 1 << 20),
                ("grpc.keepalive_time_ms", 2**31 - 1),
                ("grpc.keepalive_timeout_ms", 20000),
                ("grpc.keepalive_permit_without_calls", False),
                ("grpc.http2.max_pings_without_data", 2),
                ("grpc.dns_enable_srv_queries", 1),
            ]
        },
    ],
    ids=["keepalive", "custom arguments"],
)
def test_options_of_a_channel(server: Server, options: dict[str, Any]) -> None:
    module = tritonclient.grpc
    with module.InferenceServerClient(server.grpc, **options) as client:
        inputs = [module.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
        inputs[0].set_data_from_numpy(RISING)
        inputs[1].set_data_from_numpy(ONES)
        check_sums(client.infer("simple", inputs, headers={"test": "1"}))


# --- strings


def texts(numbers: Any) -> Any:
    return np.array([str(each).encode() for each in numbers.ravel()], object).reshape(numbers.shape)


@every
def test_strings(client: Client) -> None:
    forms = ({"binary_data": True}, {"binary_data": False}) if client.over_http else ({}, {})
    inputs = [
        client.input(name, texts(numbers), "BYTES", **form)
        for name, numbers, form in zip(("INPUT0", "INPUT1"), (RISING, ONES), forms, strict=True)
    ]
    wanted = [client.output(name, **form) for name, form in zip(("OUTPUT0", "OUTPUT1"), forms, strict=True)]
    result = client.infer("simple_string", inputs, outputs=wanted)
    assert [int(each) for each in result.as_numpy("OUTPUT0").ravel()] == (RISING + ONES).ravel().tolist()
    assert [int(each) for each in result.as_numpy("OUTPUT1").ravel()] == (RISING - ONES).ravel().tolist()
    for element in (b"he\0llo", b"\0\1\2\3"):
        array = np.array([element] * 16, object).reshape(1, 16)
        for form in forms:
            given = client.input("INPUT0", array, "BYTES", **form)
            result = client.infer("simple_identity", [given], outputs=[client.output("OUTPUT0", **form)])
            assert {
                bytes(each) if isinstance(each, bytes) else each.encode()
                for each in result.as_numpy("OUTPUT0").ravel()
            } == {element}


# --- typed contents and the bare service


@pytest.mark.parametrize(
    ("model", "datatype", "field", "element"),
    [
        ("simple", "INT32", "int_contents", int),
        ("simple_int8", "INT8", "int_contents", int),
        ("simple_string", "BYTES", "bytes_contents", lambda number: str(number).encode()),
    ],
)
def test_explicit_contents(
    server: Server, model: str, datatype: str, field: str, element: Callable[[int], Any]
) -> None:
    asked = service_pb2.ModelInferRequest(model_name=model)
    for name, numbers in (("INPUT0", range(16)), ("INPUT1", [1] * 16)):
        tensor = asked.inputs.add(name=name, datatype=datatype, shape=[1, 16])
        getattr(tensor.contents, field).extend(map(element, numbers))
    for name in ("OUTPUT0", "OUTPUT1"):
        asked.outputs.add(name=name)
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        answer = stub.ModelInfer(asked)
        asked.model_version = "wrong_specification"
        with pytest.raises(grpc.RpcError) as failure:
            stub.ModelInfer(asked)
    assert "failed to get model version from specified version string 'wrong_specification'" in str(
        failure.value
    )
    found = []
    for raw in answer.raw_output_contents:
        if datatype == "BYTES":
            found.append([int(each) for each in utils.deserialize_bytes_tensor(raw)])
        else:
            found.append(np.frombuffer(raw, utils.triton_to_np_dtype(datatype)).tolist())
    assert found == [[each + 1 for each in range(16)], [each - 1 for each in range(16)]]


def test_the_bare_service(server: Server) -> None:
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        assert stub.ServerLive(service_pb2.ServerLiveRequest()).live
        assert stub.ServerReady(service_pb2.ServerReadyRequest()).ready
        assert stub.ModelReady(service_pb2.ModelReadyRequest(name="simple")).ready
        assert stub.ServerMetadata(service_pb2.ServerMetadataRequest()).name == "triton"
        assert stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="simple")).name == "simple"
        assert stub.ModelConfig(service_pb2.ModelConfigRequest(name="simple")).config.name == "simple"
        asked = service_pb2.ModelInferRequest(model_name="simple", id="my request id")
        for name, array in (("INPUT0", RISING), ("INPUT1", ONES)):
            asked.inputs.add(name=name, datatype="INT32", shape=[1, 16])
            asked.raw_input_contents.append(array.tobytes())
        asked.outputs.add(name="OUTPUT0")
        answer = stub.ModelInfer(asked)
    assert answer.id == "my request id"
    assert list(answer.raw_output_contents) == [(RISING + ONES).tobytes()]


# --- control


@every
def test_model_control(client: Client) -> None:
    index = client.get_model_repository_index()
    assert {each["name"] for each in (index if client.over_http else index["models"])} == set(LOADED)
    client.load_model("simple")
    assert client.is_model_ready("simple")
    with refused("failed to load"):
        client.load_model("simple", config='"parameters": {"config": {{"max_batch_size": "16"}}}')
    client.load_model("simple", config='{"max_batch_size":"16"}')
    config = client.get_model_config("simple")
    assert (config if client.over_http else config["config"])["max_batch_size"] == 16
    client.unload_model("simple")
    assert not client.is_model_ready("simple")
    with refused("failed to load"):
        client.load_model("wrong_model_name")
    # for the others, from its own files
    client.load_model("simple")
    check_sums(client.infer("simple", addends(client)))


@pytest.mark.parametrize("kind", EVERY)
def test_a_file_whose_path_no_system_takes(both: Servers, kind: str) -> None:
    """Of the examples of later releases: the load is refused, and the server lives on. Release 2.51 ends."""
    with client_of(kind, both["daemon"]) as client:
        with refused("failed to load", "file"):
            client.load_model("simple_int8", config="{}", files={"file:" + "A" * 256: b"a"})
        assert client.is_server_live()
        assert client.is_model_ready("simple_int8")


# --- sequences


def expected(dyna: bool, numbers: list[int | str]) -> list[list[int]]:
    """The answers of two sequences with numbers for ids, and of one whose id is text."""
    first, second = [1, *VALUES], [101, *(-value for value in VALUES)]
    third = [21, *(-value for value in VALUES)]
    if dyna:
        first[-1] += int(numbers[0])
        second[-1] += int(numbers[1])
        third = np.cumsum([20, *(-value for value in VALUES)]).tolist()
        third[-1] += int(numbers[2])
    return [first, second, third]


def sequences(dyna: bool, offset: int) -> list[tuple[str, int | str, list[int]]]:
    """Models, ids and values."""
    model = "simple_dyna_sequence" if dyna else "simple_sequence"
    text = str(50_000 + offset) if dyna else str(uuid.uuid4())
    return [
        (model, 1000 + 2 * offset, [0, *VALUES]),
        (model, 1001 + 2 * offset, [100, *(-value for value in VALUES)]),
        ("simple_string_dyna_sequence" if dyna else model, text, [20, *(-value for value in VALUES)]),
    ]


def asked_of(
    client: Client, model: str, identity: int | str, values: list[int], place: int
) -> dict[str, Any]:
    return {
        "model_name": model,
        "inputs": [client.input("INPUT", np.full((1, 1), values[place], np.int32), "INT32")],
        "outputs": [client.output("OUTPUT")],
        "sequence_id": identity,
        "sequence_start": place == 0,
        "sequence_end": place == len(values) - 1,
    }


_offsets = iter(range(1, 1000))


@pytest.mark.parametrize("dyna", [False, True])
@every
def test_sequences(client: Client, dyna: bool) -> None:
    asked = sequences(dyna, next(_offsets))
    found = []
    for model, identity, values in asked:
        results = [
            client.infer(**asked_of(client, model, identity, values, place)) for place in range(len(values))
        ]
        found.append([int(result.as_numpy("OUTPUT").item()) for result in results])
    assert found == expected(dyna, [identity for _, identity, _ in asked])


@pytest.mark.parametrize("dyna", [False, True])
@pytest.mark.parametrize("client", GRPC, indirect=True)
def test_sequences_in_a_stream(client: Client, dyna: bool) -> None:
    asked = sequences(dyna, next(_offsets))
    requests = [
        {**asked_of(client, model, identity, values, place), "request_id": f"{identity}_{place}"}
        for model, identity, values in asked
        for place in range(len(values))
    ]
    found: dict[str, list[int]] = {}
    for result in client.stream(requests, len(requests)):
        assert not isinstance(result, Exception), result
        identity = result.get_response().id.rpartition("_")[0]
        found.setdefault(identity, []).append(int(result.as_numpy("OUTPUT").item()))
    identities = [identity for _, identity, _ in asked]
    assert [found[str(identity)] for identity in identities] == expected(dyna, identities)


@pytest.mark.parametrize("client", GRPC, indirect=True)
def test_repeat(client: Client) -> None:
    numbers = np.arange(100, 110, dtype=np.int32)
    inputs = [
        client.input("IN", numbers, "INT32"),
        client.input("DELAY", np.full(10, 1000, np.uint32), "UINT32"),
        client.input("WAIT", np.array([1000], np.uint32), "UINT32"),
    ]
    asked = {"model_name": "repeat_int32", "inputs": inputs, "outputs": [client.output("OUT")]}
    found = [result.as_numpy("OUT").tolist() for result in client.stream([asked], 10)]
    assert found == [[number] for number in numbers.tolist()]


# --- system shared memory


Region = Callable[[str, int, list[Any]], Any]


@pytest.fixture
def region() -> Iterator[Region]:
    """Makes regions, with data in them, that are destroyed in the end."""
    made: list[Any] = []

    def make(name: str, size: int, arrays: list[Any]) -> Any:
        handle = shm.create_shared_memory_region(name, f"/{name}_of_examples", size)
        made.append(handle)
        start = 0
        for array in arrays:
            shm.set_shared_memory_region(handle, [array], offset=start)
            start += array.nbytes
        return handle

    yield make
    for handle in made:
        shm.destroy_shared_memory_region(handle)
    assert not shm.mapped_shared_memory_regions()


def registered(client: Client, **sizes: int) -> None:
    for name, size in sizes.items():
        client.register_system_shared_memory(name, f"/{name}_of_examples", size)


def regions(client: Client) -> set[str]:
    told = client.get_system_shared_memory_status()
    return {each["name"] for each in told} if client.over_http else set(told.get("regions", {}))


def placed(made: Any, name: str, size: int, offset: int = 0) -> Any:
    made.set_shared_memory(name, size, offset=offset)
    return made


def read(result: Any, handle: Any, name: str, offset: int = 0) -> Any:
    told = result.get_output(name)
    if isinstance(told, dict):
        datatype, shape = told["datatype"], told["shape"]
    else:
        datatype, shape = told.datatype, told.shape
    return shm.get_contents_as_numpy(handle, utils.triton_to_np_dtype(datatype), shape, offset=offset)


@every
def test_shared_memory(client: Client, region: Region) -> None:
    client.unregister_system_shared_memory()
    client.unregister_cuda_shared_memory()
    size = RISING.nbytes
    given, taken = region("input_data", 2 * size, [RISING, ONES]), region("output_data", 2 * size, [])
    assert given is not taken
    registered(client, input_data=2 * size, output_data=2 * size)
    assert regions(client) == {"input_data", "output_data"}
    inputs = [
        placed(client.module.InferInput(name, [1, 16], "INT32"), "input_data", size, place * size)
        for place, name in enumerate(("INPUT0", "INPUT1"))
    ]
    wanted = [
        placed(client.output(name), "output_data", size, place * size)
        for place, name in enumerate(("OUTPUT0", "OUTPUT1"))
    ]
    result = client.infer("simple", inputs, outputs=wanted)
    assert np.array_equal(read(result, taken, "OUTPUT0"), RISING + ONES)
    assert np.array_equal(read(result, taken, "OUTPUT1", size), RISING - ONES)
    client.unregister_system_shared_memory()
    assert regions(client) == set()


@every
def test_strings_in_shared_memory(client: Client, region: Region) -> None:
    client.unregister_system_shared_memory()
    packed = {
        name: utils.serialize_byte_tensor(texts(numbers))
        for name, numbers in (
            ("input0", RISING),
            ("input1", ONES),
            ("output0", RISING + ONES),
            ("output1", RISING - ONES),
        )
    }
    sizes = {name: utils.serialized_byte_size(each) for name, each in packed.items()}
    handles = {name: region(name, sizes[name], []) for name in packed}
    for name in ("input0", "input1"):
        shm.set_shared_memory_region(handles[name], [packed[name]])
    registered(client, **sizes)
    inputs = [
        placed(client.module.InferInput(name.upper(), [1, 16], "BYTES"), name, sizes[name])
        for name in ("input0", "input1")
    ]
    wanted = [placed(client.output(name.upper()), name, sizes[name]) for name in ("output0", "output1")]
    result = client.infer("simple_string", inputs, outputs=wanted)
    assert np.array_equal(read(result, handles["output0"], "OUTPUT0"), texts(RISING + ONES))
    assert np.array_equal(read(result, handles["output1"], "OUTPUT1"), texts(RISING - ONES))
    client.unregister_system_shared_memory()


@synchronous
def test_the_same_objects_with_and_without_shared_memory(client: Client, region: Region) -> None:
    client.unregister_system_shared_memory()
    size = RISING.nbytes
    arrays = {"input0": RISING, "input1": ONES, "output0": None, "output1": None}
    handles = {name: region(name, size, [] if array is None else [array]) for name, array in arrays.items()}
    registered(client, **dict.fromkeys(arrays, size))
    inputs = [client.module.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    wanted = outputs(client)
    for shared in (True, False, True):
        if shared:
            for made, name in zip((*inputs, *wanted), arrays, strict=True):
                made.set_shared_memory(name, size)
        else:
            inputs[0].set_data_from_numpy(RISING)
            inputs[1].set_data_from_numpy(ONES * 2)
            for made in wanted:
                made.unset_shared_memory()
        result = client.infer("simple", inputs, outputs=wanted)
        if shared:
            assert np.array_equal(read(result, handles["output0"], "OUTPUT0"), RISING + ONES)
            assert np.array_equal(read(result, handles["output1"], "OUTPUT1"), RISING - ONES)
        else:
            check_sums(result, second=ONES * 2)
    client.unregister_system_shared_memory()


# --- images


IMAGES = np.stack([np.full((3, 4, 4), 0, np.float32) for _ in range(3)])
for place in range(3):
    IMAGES[place, place] = 8 * (place + 1)


def classes_of(result: Any, name: str) -> list[list[list[str]]]:
    rows = result.as_numpy(name)
    return [[(each.decode() if isinstance(each, bytes) else each).split(":") for each in row] for row in rows]


def check_classes(found: list[list[list[str]]]) -> None:
    for place, row in enumerate(found):
        value, index, label = row[0]
        assert (float(value), int(index), label) == (8 * (place + 1), place, LABELS[place])
        assert len(row) == 2


@pytest.mark.parametrize("how", ["at once", "asynchronous", "streaming"])
@synchronous
def test_images(client: Client, how: str) -> None:
    if how == "streaming" and client.over_http:
        pytest.skip("streams are for gRPC")
    metadata, config = client.get_model_metadata("image"), client.get_model_config("image")
    config = config if client.over_http else config["config"]
    assert [len(metadata[side]) for side in ("inputs", "outputs")] == [1, 1]
    assert metadata["outputs"][0]["datatype"] == "FP32"
    assert [int(side) for side in metadata["inputs"][0]["shape"]] == [-1, 3, 4, 4]
    told = config["input"][0]["format"]
    formats = dict(model_config_pb2.ModelInput.Format.items())
    assert formats[told] == model_config_pb2.ModelInput.FORMAT_NCHW
    assert config["max_batch_size"] == 4
    asked = {
        "model_name": "image",
        "inputs": [client.input("PIXELS", IMAGES, "FP32")],
        "outputs": [client.output("CLASSES", class_count=2)],
        "request_id": "1",
    }
    if how == "at once":
        result = client.infer(**asked)
    elif how == "streaming":
        (result,) = client.stream([asked], 1)
    elif client.over_http:
        result = client.async_infer(**asked).get_result()
    else:
        heard: queue.Queue[Any] = queue.Queue()
        client.async_infer(**asked, callback=partial(_heard, heard))
        result = heard.get(timeout=WAIT_SECS)
    check_classes(classes_of(result, "CLASSES"))


def _heard(heard: queue.Queue[Any], result: Any, error: Any) -> None:
    heard.put(error or result)


@synchronous
def test_an_ensemble_for_images(client: Client) -> None:
    metadata, config = client.get_model_metadata("image_ensemble"), client.get_model_config("image_ensemble")
    assert len(metadata["inputs"]) == len((config if client.over_http else config["config"])["input"]) == 1
    files = np.array([[image.astype(np.uint8).tobytes()] for image in IMAGES], object)
    how = {"binary_data": True} if client.over_http else {}
    given = client.input(metadata["inputs"][0]["name"], files, "BYTES", **how)
    names = [output["name"] for output in metadata["outputs"]]
    result = client.infer(
        "image_ensemble", [given], outputs=[client.output(name, class_count=2, **how) for name in names]
    )
    for name in names:
        check_classes(classes_of(result, name))
