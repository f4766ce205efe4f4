"""The table of messages that a dialect has in a form of its own, and of transports."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace

from tests.differential.calls import Call, Kit
from tests.differential.scenarios import between, usual
from tests.differential.world import Scenario, Step

_A = b'{"name":"a","datatype":"FP32","shape":[1,2],'
_B = b'{"name":"b","datatype":"INT32","shape":[2],"data":[3,4]}'

OIP = {
    "JSON": b'{"inputs":[%b"data":[1.5,2.5]},%b]}' % (_A, _B),
    "an id": b'{"id":"7","inputs":[%b"data":[1.5,2.5]},%b]}' % (_A, _B),
    "an escaped id": b'{"id":"\\u0037\\n","inputs":[%b"data":[1.5,2.5]},%b]}' % (_A, _B),
    "nested data": b'{"inputs":[%b"data":[[1.5,2.5]]},%b]}' % (_A, _B),
    "spaces": b' { "inputs" : [ %b "data" : [ 1.5 , 2.5 ] } , %b ] } ' % (_A, _B),
    "members that repeat": b'{"id":"1","id":"2","inputs":[%b"data":[1.5,2.5]},%b]}' % (_A, _B),
    "another order": b'{"inputs":[%b,%b"data":[1.5,2.5]}],"id":"9"}' % (_B, _A),
    "long numbers": b'{"inputs":[%b"data":[1.50000000001,1e-9]},%b]}' % (_A, _B),
    "out of range": b'{"inputs":[%b"data":[1e300,2.5]},%b]}' % (_A, _B),
    "a token": b'{"inputs":[%b"data":[NaN,2.5]},%b]}' % (_A, _B),
    "an output": b'{"inputs":[%b"data":[1.5,2.5]},%b],"outputs":[{"name":"b"}]}' % (_A, _B),
    "classes": b'{"inputs":[%b"data":[1.5,2.5]},%b],"outputs":[{"name":"a","parameters":{"classification":1}}]}'
    % (_A, _B),
    "parameters": b'{"parameters":{"p":1},"inputs":[%b"data":[1.5,2.5]},%b]}' % (_A, _B),
    "too few numbers": b'{"inputs":[%b"data":[1.5]},%b]}' % (_A, _B),
    "no inputs": b'{"inputs":[]}',
    "not JSON": b'{"inputs":[%b"data":[1.5,2.5]},' % _A,
}
TFSERVING = {
    "columns": b'{"inputs":{"a":[[1.5,2.5]],"b":[3,4]}}',
    "other numbers": b'{"inputs":{"a":[[9.5,8.5]],"b":[5,6]}}',
    "longer": b'{"inputs":{"a":[[1.5,2.5,3.5]],"b":[3,4,5]}}',
    "rows": b'{"instances":[{"a":[1.5,2.5],"b":3}]}',
    "more rows": b'{"instances":[{"a":[1.5,2.5],"b":3},{"a":[1.5,3.5],"b":4}]}',
    "one input alone": b'{"instances":[[1.5,2.5]]}',
    "tokens": b'{"inputs":{"a":[[NaN,-Infinity]],"b":[3,4]}}',
    "another signature": b'{"signature_name":"s","inputs":{"a":[[1.5,2.5]],"b":[3,4]}}',
    "out of range": b'{"inputs":{"a":[[1e300,2.5]],"b":[3,4]}}',
    "more members": b'{"inputs":{"a":[[1.5,2.5]],"b":[3,4]},"x":1234}',
    "text": b'{"inputs":{"a":[["1.5","2.5"]],"b":[3,4]}}',
    "not JSON": b'{"inputs":{"a":[[1.5,2.5]',
    "nothing": b"",
}
_TENSOR = b'{"name":"a","dtype":"DT_FLOAT32","shape":[1,2],"flat_float32":[%b]}'
_SECOND = b'{"name":"b","dtype":"DT_INT32","shape":[2],"flat_int32":[3,4]}'
GRPS = {
    "one form": b'{"model":"m","gtensors":{"tensors":[%b,%b]}}' % (_TENSOR % b"1.5,2.5", _SECOND),
    "other numbers": b'{"model":"m","gtensors":{"tensors":[%b,%b]}}' % (_TENSOR % b"9.5,2.5", _SECOND),
    "longer numbers": b'{"model":"m","gtensors":{"tensors":[%b,%b]}}' % (_TENSOR % b"9.53125,2.5", _SECOND),
    "spaces": b'{ "model": "m", "gtensors": {"tensors": [%b,%b]}}' % (_TENSOR % b"9.5,2.5", _SECOND),
    "no model": b'{"gtensors":{"tensors":[%b,%b]}}' % (_TENSOR % b"1.5,2.5", _SECOND),
    "text": b'{"model":"m","str_data":"text"}',
    "not JSON": b'{"model":"m","gtensors":{"tensors":[',
}
TRTIS = {
    "as usual": 'batch_size: 1 input { name: "a" dims: 1 dims: 2 } input { name: "b" dims: 2 } output { name: "a" }',
    "an id": 'id: 9 batch_size: 1 input { name: "a" dims: 1 dims: 2 } input { name: "b" dims: 2 }',
    "no dims": 'batch_size: 1 input { name: "a" } input { name: "b" dims: 2 } output { name: "a" }',
    "classes": 'batch_size: 1 input { name: "a" dims: 1 dims: 2 } input { name: "b" dims: 2 } '
    'output { name: "a" cls { count: 1 } }',
    "not a message": "batch_size: 1 input {",
}


def _bodies(bodies: dict[str, bytes], *headers: tuple[str, str]) -> Callable[[Kit], list[Step]]:
    def steps(kit: Kit) -> list[Step]:
        call = replace(kit.call(), headers=headers)
        return between(kit, [step for body in bodies.values() for step in [call.containing(body)] * 3])

    return steps


def _trtis(kit: Kit) -> list[Step]:
    return between(
        kit, [replace(kit.call(3), headers=(("NV-InferRequest", each),)) for each in TRTIS.values()]
    )


def _binary_to_json(kit: Kit) -> list[Step]:
    head = b'{"inputs":[%b"parameters":{"binary_data_size":8}},%b]}' % (_A, _B)
    call = replace(kit.call(), headers=(("Inference-Header-Content-Length", str(len(head))),))
    return [call.containing(head + each.body[-16:-8]) for each in usual(kit, 12)]


def _http(kit: Kit) -> list[Step]:
    """Other methods, versions, paths and codings of one request."""
    call = kit.call(5)
    packed = call.containing(gzip.compress(call.body)).having(("Content-Encoding", "gzip"))
    others: list[Call] = [
        packed,
        call.having(("Content-Encoding", "gzip")),
        call.having(("Transfer-Encoding", "chunked")),
        call.having(("Expect", "100-continue")),
        call.having(("Connection", "close")),
        call.having(("Accept-Encoding", "gzip")),
        replace(call, minor=0),
        replace(call, verb="PUT"),
        replace(call, verb="HEAD"),
        replace(call, place=f"{call.place.partition('?')[0]}?x=1"),
        replace(call, place="/unknown"),
        replace(call, place=call.place.replace("m", "%6d")),
        call.having(("Origin", "https://example.org")),
        call.having(("Content-Type", "text/plain")),
    ]
    return between(kit, others)


def _grpc(kit: Kit) -> list[Step]:
    calls = [
        kit.call(5).having(("gzip", "gzip")),
        *(replace(kit.call(5), secs=20.0 + more) for more in range(6)),
    ]
    return between(kit, [*calls, replace(kit.call(5), place="/unknown.Service/Method")])


def _brpc(kit: Kit) -> list[Step]:
    call = kit.call(5)
    others = [*(replace(call, secs=20.0 + more) for more in range(3)), replace(call, attachment=b"attached")]
    return between(
        kit, [*others, replace(call, place="CheckLiveness", body=b""), replace(call, place="Unknown")]
    )


JSON = (("Content-Type", "application/json"),)
FORMS: dict[str, dict[str, Scenario]] = {
    "oip/http": {
        "JSON": Scenario(_bodies(OIP, *JSON)),
        "from binary to JSON": Scenario(_binary_to_json),
    },
    "tfserving/http": {"JSON": Scenario(_bodies(TFSERVING, *JSON))},
    "grps/http": {"JSON": Scenario(_bodies(GRPS, *JSON))},
    "trtis/http": {"headers": Scenario(_trtis)},
}
"""By the binding of the caller."""

TRANSPORTS: dict[str, dict[str, Scenario]] = {
    "http": {"over HTTP": Scenario(_http)},
    "grpc": {"over gRPC": Scenario(_grpc)},
    "brpc": {"over bRPC": Scenario(_brpc)},
    "tcp": {},
}
"""By its transport."""
