"""Bad inputs of version 1 over HTTP and gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interlingua.schemas import Datatype
from interlingua.schemas.trtis import MESSAGES
from tests.e2e.bad_inputs.datatypes import claims
from tests.e2e.bad_inputs.wires import Grpc, Http

SERVICE = "/nvidia.inferenceserver.GRPCService/"
HEADER = "NV-InferRequest"
GOOD = 'batch_size: 1 input { name: "INPUT0" } input { name: "INPUT1" } output { name: "OUTPUT0" }'
ROW = bytes(64)


def _infer(header: str | None = GOOD, body: bytes = ROW * 2, path: str = "simple", **headers: str) -> Http:
    return Http(f"/api/infer/{path}", body, {**({} if header is None else {HEADER: header}), **headers})


def _http() -> Iterator[tuple[str, Http]]:
    for name, header in {
        "no header": None,
        "an empty header": "",
        "a header that is no text format": "batch_size",
        "a header in JSON": '{"batch_size": 1}',
        "an unknown field": 'batch_size: 1 color: "red"',
        "an open brace": "batch_size: 1 input {",
        "an open quote": 'batch_size: 1 input { name: "A }',
        "a batch of 0": GOOD.replace("1", "0", 1),
        "a batch above the limit": GOOD.replace("1", "9", 1),
        "a negative batch": GOOD.replace("1", "-1", 1),
        "a batch of 2^32": GOOD.replace("1", str(2**32), 1),
        "a batch of 10^30": GOOD.replace("1", str(10**30), 1),
        "no inputs": 'batch_size: 1 output { name: "OUTPUT0" }',
        "one input of two": 'batch_size: 1 input { name: "INPUT0" } output { name: "OUTPUT0" }',
        "an unknown input": GOOD.replace("INPUT1", "Q"),
        "an input twice": GOOD.replace("INPUT1", "INPUT0"),
        "an input without a name": GOOD.replace('name: "INPUT1"', ""),
        "an unknown output": GOOD.replace("OUTPUT0", "Z"),
        "an output twice": f'{GOOD} output {{ name: "OUTPUT0" }}',
        "dims that differ": GOOD.replace('"INPUT0"', '"INPUT0" dims: 15'),
        "dims of 0": GOOD.replace('"INPUT0"', '"INPUT0" dims: 0'),
        "negative dims": GOOD.replace('"INPUT0"', '"INPUT0" dims: -1'),
        "dims of 2^62": GOOD.replace('"INPUT0"', f'"INPUT0" dims: {2**62} dims: {2**62}'),
        "batch_byte_size that differs": GOOD.replace('"INPUT0"', '"INPUT0" batch_byte_size: 63'),
        "a number out of range as flags": f"flags: {10**30} {GOOD}",
        "an unregistered region": GOOD.replace(
            '"INPUT0"', '"INPUT0" shared_memory { name: "r" offset: 0 byte_size: 64 }'
        ),
        "an unregistered region for an output": GOOD.replace(
            '"OUTPUT0"', '"OUTPUT0" shared_memory { name: "r" offset: 0 byte_size: 64 }'
        ),
    }.items():
        yield name, _infer(header)
    yield "an empty body", _infer(body=b"")
    yield "a body that is too short", _infer(body=(ROW * 2)[:-1])
    yield "a body that is too long", _infer(body=ROW * 2 + b"x")
    yield "an unknown model", _infer(path="absent")
    yield "an unknown version", _infer(path="simple/9")
    yield "a version that is no number", _infer(path="simple/x")
    yield "a negative version", _infer(path="simple/-1")
    yield "a version of 10^30", _infer(path=f"simple/{10**30}")
    yield (
        "strings that are cut short",
        _infer(
            'batch_size: 1 input { name: "INPUT0" batch_byte_size: 70 } input { name: "INPUT1" batch_byte_size: 70 } '
            'output { name: "OUTPUT0" }',
            b"\xff\xff\xff\xff" * 35,
            "simple_string",
        ),
    )
    for method, path in (
        ("GET", "/api/infer/simple"), ("POST", "/api/infer"), ("POST", "/api/infer/"), ("POST", "/api/status"),
        ("GET", "/api/status/absent"), ("GET", "/api/nothing"), ("GET", "/api/health"), ("GET", "/api/health/x"),
        ("POST", "/api/health/live"), ("POST", "/api/modelcontrol/load/absent"),
        ("POST", "/api/modelcontrol/reload/simple"),
        ("GET", "/api/modelcontrol/load/simple"), ("POST", "/api/repository/index"),
        ("POST", "/api/sharedmemorycontrol/register/r//interlingua-absent/0/8"),
        ("POST", "/api/sharedmemorycontrol/register/r//interlingua-absent/x/8"),
        ("POST", "/api/sharedmemorycontrol/register/r//interlingua-absent/0/-8"),
        ("POST", f"/api/sharedmemorycontrol/register/r//k/0/{10**30}"),
        ("POST", "/api/sharedmemorycontrol/register/r"),
        ("POST", "/api/sharedmemorycontrol/cudaregister/r/8/0"),
    ):  # fmt: skip
        yield f"{method} {path}", Http(path, b"", {}, method)


def _datatypes() -> Iterator[tuple[str, Http | Grpc]]:
    """Requests have no datatype, so no other one is a mistake: that of the model counts."""
    for name, model, claim in claims(list(Datatype)):
        if model != claim.model:
            continue
        dims = " ".join(f"dims: {side}" for side in claim.shape)
        size = f" batch_byte_size: {len(claim.data)}" if model == "identity_bytes" else ""
        header = f'batch_size: 1 input {{ name: "{claim.name}" {dims}{size} }} output {{ name: "OUTPUT0" }}'
        yield f"trtis/http datatype: {name}", _infer(header, claim.data, model)
        stated: dict[str, Any] = {"name": claim.name, "dims": claim.shape}
        if size:
            stated["batch_byte_size"] = len(claim.data)
        yield (
            f"trtis/grpc datatype: {name}",
            Grpc(f"{SERVICE}Infer", _request({"input": [stated]}, [claim.data], model_name=model)),
        )


def _request(header: dict[str, Any] | None = None, raw: list[bytes] | None = None, **fields: Any) -> Any:
    stated = {
        "batch_size": 1,
        "input": [{"name": "INPUT0"}, {"name": "INPUT1"}],
        "output": [{"name": "OUTPUT0"}],
        **(header or {}),
    }
    return MESSAGES["nvidia.inferenceserver.InferRequest"](
        **{
            "model_name": "simple",
            "model_version": -1,
            "meta_data": stated,
            "raw_input": [ROW, ROW] if raw is None else raw,
            **fields,
        }
    )


def _grpc() -> Iterator[tuple[str, Grpc]]:
    for name, message in {
        "no protobuf": b"\xff\xff",
        "an empty message": b"",
        "an unknown model": _request(model_name="absent"),
        "an unknown version": _request(model_version=9),
        "a version of -5": _request(model_version=-5),
        "a batch of 0": _request({"batch_size": 0}),
        "a batch above the limit": _request({"batch_size": 9}),
        "no inputs": _request({"input": []}, []),
        "an unknown input": _request({"input": [{"name": "INPUT0"}, {"name": "Q"}]}),
        "an input twice": _request({"input": [{"name": "INPUT0"}, {"name": "INPUT0"}]}),
        "an unknown output": _request({"output": [{"name": "Z"}]}),
        "dims that differ": _request({"input": [{"name": "INPUT0", "dims": [15]}, {"name": "INPUT1"}]}),
        "negative dims": _request({"input": [{"name": "INPUT0", "dims": [-1]}, {"name": "INPUT1"}]}),
        "no raw input": _request(raw=[]),
        "one raw input of two": _request(raw=[ROW]),
        "raw input that is too short": _request(raw=[ROW, ROW[:-1]]),
        "raw input that is too long": _request(raw=[ROW, ROW + b"x"]),
        "an unregistered region": _request(
            {
                "input": [
                    {"name": "INPUT0", "shared_memory": {"name": "r", "byte_size": 64}},
                    {"name": "INPUT1"},
                ]
            }
        ),
    }.items():
        yield f"infer: {name}", Grpc(f"{SERVICE}Infer", message)
        if name in ("no protobuf", "an unknown model", "a batch of 0"):
            yield f"stream: {name}", Grpc(f"{SERVICE}StreamInfer", message)

    def call(method: str, **fields: Any) -> Grpc:
        return Grpc(SERVICE + method, MESSAGES[f"nvidia.inferenceserver.{method}Request"](**fields))

    yield "status: an unknown model", call("Status", model_name="absent")
    yield "health: an unknown mode", call("Health", mode="x")
    yield "health: no protobuf", Grpc(f"{SERVICE}Health", b"\xff")
    yield "control: load an unknown model", call("ModelControl", model_name="absent", type=1)
    yield "control: an unknown type", call("ModelControl", model_name="simple", type=7)
    yield "repository: no request type", call("Repository")
    yield "memory: no request type", call("SharedMemoryControl")
    yield "an unknown method", Grpc(f"{SERVICE}Nothing")


def inputs() -> dict[str, Http | Grpc]:
    groups = {"trtis/http": _http(), "trtis/grpc": _grpc()}
    found = {f"{group} {name}": each for group, cases in groups.items() for name, each in cases}
    return {**found, **dict(_datatypes())}
