"""Broken configurations and the exact lines that are said of them; good ones and what they mean."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pydantic import ValidationError

from interlingua.protocols.dialect import Binding, Dialect
from interlingua.protocols.grps.options import PredictOptions, StreamingControl
from interlingua.protocols.manifest import Manifest
from interlingua.protocols.registry import DIALECTS
from interlingua.protocols.section import Section
from interlingua.protocols.transport.h2.options import Http2Options
from interlingua.protocols.transport.timeouts import Timeouts
from interlingua.schemas import Datatype
from interlingua.translator.config import Config, ConfigError, load, parse
from interlingua.translator.config.bindings import bindings_of
from interlingua.translator.config.context import Installation
from interlingua.translator.config.options import ListenerOptions

BOTH = frozenset({"http", "grpc"})
BARE = frozenset({"http", "tcp"})
INSTALLATION = Installation(
    serves={"oip": BOTH, "graphpipe": BARE},
    calls={"oip": BOTH, "graphpipe": BARE},
    backends={"onnxruntime": True, "identity": False},
    prefixes={"oip": ("/v2",)},
)
LISTENERS = 'listeners: [{listen: "127.0.0.1:0", transport: http}]'
STATED = (
    "{inputs: [{name: I, datatype: FP32, shape: [-1]}], outputs: [{name: O, datatype: FP32, shape: [-1]}]}"
)
UPSTREAMS = 'upstreams: {triton: {dialect: oip, transport: grpc, urls: ["localhost:1"]}}'


FLAVORS = {name: dialect.flavors[0] for name, dialect in DIALECTS.items() if dialect.flavors}


def read(text: str) -> Config:
    return parse(dedent(text), "c.yaml", INSTALLATION)


def errors(text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        read(text)
    assert str(raised.value) == "\n".join(raised.value.lines)
    return raised.value.lines


def with_listeners(text: str) -> str:
    """``text`` below a usable first line."""
    return f"{LISTENERS}\n{dedent(text)}"


BROKEN: dict[str, tuple[str, list[str]]] = {
    "empty": ("", ["c.yaml:1: listeners: is missing"]),
    "not_a_mapping": ("- a", ["c.yaml:1: must be a mapping, not a list"]),
    "no_listener": ("listeners: []", ["c.yaml:1: listeners: must not be empty"]),
    "nothing_behind_a_required_key": ("listeners:", ["c.yaml:1: listeners: is missing"]),
    "unknown_section": (
        with_listeners("upstream: {}"),
        [
            "c.yaml:2: upstream: unknown key 'upstream'; did you mean 'upstreams'? (allowed: server, "
            "listeners, admin, auth, model_repository, default_model, models, upstreams, routes, tap, tracing, "
            "include, and 3 more)"
        ],
    ),
    "unknown_key_deep_down": (
        'listeners:\n  - listen: ":0"\n    transport: http\n    dialect: [oip]',
        [
            "c.yaml:4: listeners[0].dialect: unknown key 'dialect'; did you mean 'dialects'? (allowed: "
            "listen, transport, dialects, flavors, default_model, allow, trusted_proxies, max_request_bytes, "
            "max_response_bytes, max_decompressed_bytes, max_compression_ratio, max_elements, and 19 more)"
        ],
    ),
    "unknown_key_resembling_nothing": (
        with_listeners("admin: {listen: ':0', qqq: 1}"),
        [
            "c.yaml:2: admin.qqq: unknown key 'qqq' (allowed: listen, allow, max_connections, trusted_proxies, "
            "tls, hosts)"
        ],
    ),
    "users_without_credentials": (
        """\
        listeners: [{listen: ":0", transport: http, allow: {inference: [local, "user:ann", "user:"]}}]
        """,
        ["c.yaml:1: listeners[0].allow.inference[2]: 'user:' is not of the form user:NAME"],
    ),
    "dialects_over_tcp": (
        """\
        listeners:
          - {listen: ":0", transport: tcp, dialects: [oip]}
          - {listen: ":0", transport: tcp, dialects: [graphpipe], max_concurrency: 3, http2: {keepalive_secs: 9.0}}
          - {listen: ":1", transport: http, engine: library, http2: {}}
        """,
        [
            "c.yaml:2: listeners[0].dialects: dialect 'oip' does not travel over tcp (allowed: grpc, http)",
            "c.yaml:3: listeners[1].max_concurrency: is for transport brpc, not tcp",
            "c.yaml:3: listeners[1].http2: is for transport http, grpc, brpc or any, not tcp",
            "c.yaml:4: listeners[2].http2: needs engine: native",
        ],
    ),
    "mirrors": (
        with_listeners(
            f"""\
            models: {{m: {{backend: identity, signature: {STATED}}}, n: {{backend: identity, signature: {STATED}}}}}
            routes:
              - {{to: m, mirror: {{to: m}}}}
              - {{to: m, mirror: {{to: n, percent: 0, rtol: -1, max_queue_requests: 0, keep: {{}}}}}}
              - {{to: m, mirror: {{to: o, percent: 101, atol: 1e-5}}}}
            """
        ),
        [
            "c.yaml:4: routes[0].mirror: 'm' is where the requests go already: copies go to another model",
            "c.yaml:5: routes[1].mirror.percent: must be above 0, not the number 0",
            "c.yaml:5: routes[1].mirror.rtol: must be at least 0, not the number -1",
            "c.yaml:5: routes[1].mirror.max_queue_requests: must be at least 1, not the number 0",
            "c.yaml:5: routes[1].mirror.keep.path: is missing",
            "c.yaml:6: routes[2].mirror.to: unknown model 'o' (allowed: m, n)",
            "c.yaml:6: routes[2].mirror.percent: must be at most 100, not the number 101",
            "c.yaml:6: routes[2].mirror.atol: '1e-5' is text in YAML, write 1.0e-05",
        ],
    ),
    "engines": (
        """\
        listeners:
          - {listen: ":0", transport: grpc, engine: nativ}
          - {listen: ":0", transport: brpc, engine: library}
        """,
        [
            "c.yaml:2: listeners[0].engine: unknown value 'nativ'; did you mean 'native'? "
            "(allowed: native, library)",
            "c.yaml:3: listeners[1].dialects: must not be empty",
            "c.yaml:3: listeners[1].engine: is for transport http or grpc, not brpc",
        ],
    ),
    "engines_of_upstreams": (
        with_listeners(
            """\
            upstreams:
              odd: {dialect: oip, transport: grpc, urls: ["a:1"], engine: librar}
              framed: {dialect: graphpipe, transport: tcp, urls: ["a:1"], engine: native}
            """
        ),
        [
            "c.yaml:3: upstreams.odd.engine: unknown value 'librar'; did you mean 'library'? "
            "(allowed: native, library)",
            "c.yaml:4: upstreams.framed.engine: is for transport http or grpc, not tcp",
        ],
    ),
    "predict_of_ones_own": (
        with_listeners(
            """\
            grps:
              customized_predict_http:
                path: /v2/mine
                streaming_ctrl: {ctrl_mode: header_param, ctrl_key: a b, res_content_type: "a\\nb"}
            """
        ),
        [
            "c.yaml:4: grps.customized_predict_http.path: '/v2/mine' belongs to dialect 'oip'",
            "c.yaml:5: grps.customized_predict_http.streaming_ctrl.ctrl_key: 'a b' cannot be the name of a header",
            "c.yaml:5: grps.customized_predict_http.streaming_ctrl.res_content_type: "
            "'a\\nb' cannot be the value of a header",
        ],
    ),
    "a_path_that_is_none": (
        with_listeners("grps: {customized_predict_http: {path: 'chat'}}"),
        [
            "c.yaml:2: grps.customized_predict_http.path: 'chat' is no path of one's own, "
            "such as /v1/chat/completions"
        ],
    ),
    "a_word_that_is_not_a_choice": (
        with_listeners("server: {log_level: warn, log_format: 3}"),
        [
            "c.yaml:2: server.log_level: unknown value 'warn'; did you mean 'warning'? "
            "(allowed: debug, info, warning, error)",
            "c.yaml:2: server.log_format: must be one of text, json, not the number 3",
        ],
    ),
    "wrong_types": (
        with_listeners(
            """\
            server:
              name: 5
              strict_readiness: "yes"
              drain_secs: 1e-3
              shutdown_timeout_secs: .inf
            models: [a]
            model_repository: {}
            """
        ),
        [
            "c.yaml:3: server.name: must be text, not the number 5",
            "c.yaml:4: server.strict_readiness: must be true or false, not the text 'yes'",
            "c.yaml:5: server.drain_secs: must be a number, not the text '1e-3'",
            "c.yaml:6: server.shutdown_timeout_secs: must be a finite number, not the number inf",
            "c.yaml:7: models: must be a mapping, not a list",
            "c.yaml:8: model_repository: must be a list, not a mapping",
        ],
    ),
    "out_of_range": (
        'listeners:\n  - {listen: ":0", transport: http, max_request_bytes: 0, max_response_bytes: 1.5, '
        "max_decompressed_bytes: 2097151}\n"
        "server: {drain_secs: -1, name: ''}",
        [
            "c.yaml:2: listeners[0].max_request_bytes: must be above 0, not the number 0",
            "c.yaml:2: listeners[0].max_response_bytes: must be a whole number, not the number 1.5",
            "c.yaml:2: listeners[0].max_decompressed_bytes: must be at least 2097152, not the number 2097151",
            "c.yaml:3: server.name: must not be empty",
            "c.yaml:3: server.drain_secs: must be at least 0, not the number -1",
        ],
    ),
    "addresses": (
        """\
        listeners:
          - {listen: "127.0.0.1:8000", transport: http}
          - {listen: "127.0.0.1:8000", transport: grpc}
          - {listen: "localhost", transport: http}
          - {listen: "unix:run/a.sock", transport: http}
        admin: {listen: "unix:run/a.sock"}
        """,
        [
            "c.yaml:2: listeners[0].listen: 2 listeners cannot share the address 127.0.0.1:8000",
            "c.yaml:3: listeners[1].listen: 2 listeners cannot share the address 127.0.0.1:8000",
            "c.yaml:4: listeners[2].listen: 'localhost' is not an address: "
            "write host:port, [::1]:port, :port or unix:path",
            "c.yaml:5: listeners[3].listen: 2 listeners cannot share the address unix:run/a.sock",
            "c.yaml:6: admin.listen: 2 listeners cannot share the address unix:run/a.sock",
        ],
    ),
    "dialects": (
        """\
        listeners:
          - {listen: ":0", transport: grpc, dialects: [graphpipe]}
          - {listen: ":0", transport: http, dialects: [graphpip, oip]}
          - {listen: ":0", transport: http, dialects: [oip, oip]}
          - {listen: ":0", transport: http, dialects: []}
        """,
        [
            "c.yaml:2: listeners[0].dialects: dialect 'graphpipe' does not travel over grpc (allowed: http, tcp)",
            "c.yaml:3: listeners[1].dialects[0]: unknown dialect 'graphpip'; did you mean 'graphpipe'? "
            "(allowed: oip, graphpipe)",
            "c.yaml:4: listeners[2].dialects: dialect 'oip' is repeated",
            "c.yaml:5: listeners[3].dialects: must not be empty",
        ],
    ),
    "flavors": (
        """\
        listeners:
          - {listen: ":0", transport: http, flavors: {oip: kserv}}
          - {listen: ":0", transport: http, flavors: {graphpipe: go}}
        """,
        [
            "c.yaml:2: listeners[0].flavors: unknown flavor 'kserv'; did you mean 'kserve'? "
            "(allowed: triton, kserve, mlserver)",
            "c.yaml:3: listeners[1].flavors: unknown dialect with flavors 'graphpipe' "
            f"(allowed: {', '.join(FLAVORS)})",
        ],
    ),
    "backend_or_upstream": (
        with_listeners(
            f"""\
            models:
              neither: {{}}
              both: {{backend: identity, upstream: triton, signature: {STATED}}}
              nothing_behind_it:
              lost: {{upstream: tritn}}
              odd: {{backend: onnx, path: /}}
            {UPSTREAMS}
            """
        ),
        [
            "c.yaml:3: models.neither.upstream: is missing: a model has a 'backend' that runs it here, "
            "or an 'upstream'",
            "c.yaml:4: models.both.upstream: a model has a 'backend' or an 'upstream', not both",
            "c.yaml:5: models.nothing_behind_it: must be a mapping, not nothing",
            "c.yaml:6: models.lost.upstream: unknown upstream 'tritn'; did you mean 'triton'? "
            "(allowed: triton)",
            "c.yaml:7: models.odd.backend: unknown backend 'onnx'; did you mean 'onnxruntime'? "
            "(allowed: onnxruntime, identity)",
        ],
    ),
    "keys_of_the_other_kind": (
        with_listeners(
            f"""\
            models:
              here: {{backend: identity, signature: {STATED}, remote_model: m, outputs: {{O: P}}}}
              there: {{upstream: triton, path: /, device: cpu, instances: 2}}
            {UPSTREAMS}
            """
        ),
        [
            "c.yaml:3: models.here.remote_model: only a model with an 'upstream' has this key",
            "c.yaml:3: models.here.outputs: only a model with an 'upstream' has this key",
            "c.yaml:4: models.there.path: only a model with a 'backend' has this key",
            "c.yaml:4: models.there.device: only a model with a 'backend' has this key",
            "c.yaml:4: models.there.instances: only a model with a 'backend' has this key",
        ],
    ),
    "what_a_backend_needs": (
        with_listeners(
            """\
            models:
              file: {backend: onnxruntime}
              stated: {backend: identity}
              device: {backend: onnxruntime, path: /, device: "gpu:0"}
              absent: {backend: onnxruntime, path: /, device: "cuda:99"}
            """
        ),
        [
            "c.yaml:3: models.file.path: is missing: backend 'onnxruntime' loads a file",
            "c.yaml:4: models.stated.signature: is missing: backend 'identity' has no file with a signature",
            "c.yaml:5: models.device.device: unknown device 'gpu:0' (allowed: cpu, cuda, cuda:N)",
            "c.yaml:6: models.absent.device: there is no device 'cuda:99' here (there are: cpu)",
        ],
    ),
    "renames": (
        with_listeners(
            f"""\
            models:
              twice: {{upstream: triton, inputs: {{a: X, b: X}}}}
              stated: {{upstream: triton, inputs: {{a: X}}, signature: {STATED}}}
            {UPSTREAMS}
            """
        ),
        [
            "c.yaml:3: models.twice.inputs: name 'X' is repeated",
            "c.yaml:4: models.stated.signature: has no 'a', which inputs renames",
        ],
    ),
    "attributes": (
        with_listeners(
            f"""\
            models:
              free: {{upstream: triton, labels: {{any: [cat]}}, format: {{any: FORMAT_NHWC}}}}
              here: {{backend: identity, signature: {STATED}, format: {{a: FORMAT_NCHW}}}}
              form: {{upstream: triton, format: {{a: NCHW}}}}
              stated: {{upstream: triton, signature: {STATED}, labels: {{X: [cat]}}, format: {{X: FORMAT_NHWC}}}}
              twice:
                upstream: triton
                labels: {{O: [cat]}}
                signature:
                  inputs: []
                  outputs: [{{name: O, datatype: FP32, shape: [1]}}]
                  labels: {{O: [dog]}}
            {UPSTREAMS}
            """
        ),
        [
            "c.yaml:4: models.here.format: only a model with an 'upstream' has this key",
            "c.yaml:5: models.form.format.a: unknown value 'NCHW' (allowed: FORMAT_NHWC, FORMAT_NCHW)",
            "c.yaml:6: models.stated.labels: unknown output 'X' (allowed: O)",
            "c.yaml:6: models.stated.format: unknown input 'X' (allowed: I)",
            "c.yaml:9: models.twice.labels: output 'O' has labels in the signature, too",
        ],
    ),
    "signatures": (
        with_listeners(
            """\
            models:
              m:
                backend: identity
                signature:
                  inputs:
                    - {name: I, datatype: FP33, shape: [-2]}
                    - {name: J, datatype: 4, shape: 1}
                  outputs:
                    - {name: O, datatype: INT8, shape: [4, 1]}
                  max_batch_size: 8
                  labels: {P: [cat]}
              n:
                backend: identity
                signature:
                  inputs: [{name: I, datatype: BYTES, shape: []}, {name: I, datatype: BYTES, shape: []}]
                  outputs: []
            """
        ),
        [
            "c.yaml:7: models.m.signature.inputs[0].datatype: unknown datatype 'FP33'; did you mean 'FP32'? "
            "(allowed: BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16, FP32, "
            "and 2 more)",
            "c.yaml:7: models.m.signature.inputs[0].shape[0]: must be at least -1, not the number -2",
            "c.yaml:8: models.m.signature.inputs[1].datatype: must be text, not the number 4",
            "c.yaml:8: models.m.signature.inputs[1].shape: must be a list, not the number 1",
            "c.yaml:11: models.m.signature.max_batch_size: with 8, the shape of 'O' must begin with -1, "
            "the batch",
            "c.yaml:12: models.m.signature.labels: unknown output 'P' (allowed: O)",
            "c.yaml:16: models.n.signature.inputs: tensor 'I' is repeated",
            "c.yaml:17: models.n.signature.outputs: must not be empty",
        ],
    ),
    "upstreams": (
        with_listeners(
            """\
            upstreams:
              a: {dialect: graphpipe, transport: grpc, urls: ["host:1"]}
              b: {dialect: trtis, transport: http, urls: [], flavor: anything}
              c: {dialect: oip, transport: grpc, urls: ["http://host:1", "host"], flavor: tritn}
              d: {dialect: oip, transport: http, urls: ["a:1", "a:1"], connect_timeout_secs: 0}
            """
        ),
        [
            "c.yaml:3: upstreams.a.transport: dialect 'graphpipe' does not travel over grpc (allowed: http, tcp)",
            "c.yaml:4: upstreams.b.dialect: unknown dialect 'trtis' (allowed: oip, graphpipe)",
            "c.yaml:4: upstreams.b.urls: must not be empty",
            "c.yaml:5: upstreams.c.urls[0]: 'http://host:1' has an unknown scheme: one of grpc is meant, "
            "or none",
            "c.yaml:5: upstreams.c.urls[1]: 'host' is not a URL: write host:port, http://host:port/base or "
            "unix:path",
            "c.yaml:5: upstreams.c.flavor: unknown flavor 'tritn'; did you mean 'triton'? "
            "(allowed: auto, triton, kserve, mlserver)",
            "c.yaml:6: upstreams.d.urls: URL 'a:1' is repeated",
            "c.yaml:6: upstreams.d.connect_timeout_secs: must be above 0, not the number 0",
        ],
    ),
    "references_between_parts": (
        f"""\
        listeners:
          - {{listen: "127.0.0.1:81", transport: http, default_model: digit}}
        default_model: nothing_like_it
        models:
          digits: {{backend: identity, signature: {STATED}}}
        routes:
          - {{to: digitss}}
          - {{match: {{listener: "127.0.0.1:80", dialect: oi, modle: "*"}}, to: digits}}
          - {{match: {{}}, mirror: {{}}}}
        """,
        [
            "c.yaml:2: listeners[0].default_model: unknown model 'digit'; did you mean 'digits'? "
            "(allowed: digits)",
            "c.yaml:3: default_model: unknown model 'nothing_like_it' (allowed: digits)",
            "c.yaml:7: routes[0].to: unknown model 'digitss'; did you mean 'digits'? (allowed: digits)",
            "c.yaml:8: routes[1].match.dialect: unknown dialect 'oi'; did you mean 'oip'? "
            "(allowed: oip, graphpipe)",
            "c.yaml:8: routes[1].match.listener: unknown listener '127.0.0.1:80'; did you mean "
            "'127.0.0.1:81'? (allowed: 127.0.0.1:81)",
            "c.yaml:8: routes[1].match.modle: unknown key 'modle'; did you mean 'model'? "
            "(allowed: model, dialect, listener, version, headers, parameters)",
            "c.yaml:9: routes[2].split: is missing, and so is 'to': a route has one of them",
            "c.yaml:9: routes[2].mirror.to: is missing",
        ],
    ),
    "routes": (
        f"""\
        {LISTENERS}
        models:
          a: {{backend: identity, signature: {STATED}}}
          b: {{backend: identity, signature: {STATED}}}
        routes:
          - {{to: a, split: [{{to: b}}]}}
          - {{split: []}}
          - {{split: [{{to: a, weight: 0}}, {{to: b, weight: 0}}]}}
          - {{split: [{{to: a}}, {{to: a, weight: 2}}]}}
          - {{split: [{{to: a, weight: -1}}, {{to: c, wieght: 2}}], sticky: {{header: ""}}}}
          - {{to: a, sticky: {{header: x-user}}, fallback: a, timeout_secs: 0, datatypes: wide}}
          - {{split: [{{to: a}}, {{to: b, weight: 0}}], fallback: a}}
          - {{to: a, rename: {{inputs: {{x: I, y: I}}, outputs: {{x: 1}}}}, versions: {{"1": 3}}}}
          - {{to: a, match: {{headers: {{x-tenant: 1}}, parameters: {{class: [gold]}}, version: 1}}}}
        """,
        [
            "c.yaml:6: routes[0].split: conflicts with 'to': a route has one of them",
            "c.yaml:7: routes[1].split: must not be empty",
            "c.yaml:8: routes[2].split: has no weight above 0",
            "c.yaml:9: routes[3].split: model 'a' is repeated",
            "c.yaml:10: routes[4].split[0].weight: must be at least 0, not the number -1",
            "c.yaml:10: routes[4].split[1].to: unknown model 'c' (allowed: a, b)",
            "c.yaml:10: routes[4].split[1].wieght: unknown key 'wieght'; did you mean 'weight'? "
            "(allowed: to, weight)",
            "c.yaml:10: routes[4].sticky.header: must not be empty",
            "c.yaml:11: routes[5].sticky: is for a split: here every request goes to one model",
            "c.yaml:11: routes[5].fallback: 'a' is where the requests go already",
            "c.yaml:11: routes[5].timeout_secs: must be above 0, not the number 0",
            "c.yaml:11: routes[5].datatypes: unknown value 'wide'; did you mean 'widen'? "
            "(allowed: strict, widen)",
            "c.yaml:12: routes[6].fallback: 'a' is where the requests go already",
            "c.yaml:13: routes[7].rename.inputs: tensor of the model 'I' is repeated",
            "c.yaml:13: routes[7].rename.outputs.x: must be text, not the number 1",
            "c.yaml:13: routes[7].versions.1: must be text, not the number 3",
            "c.yaml:14: routes[8].match.version: must be text, not the number 1",
            "c.yaml:14: routes[8].match.headers.x-tenant: must be text, not the number 1",
            "c.yaml:14: routes[8].match.parameters.class: must be text, a number, true or false, not a list",
        ],
    ),
    "no_model_at_all": (
        with_listeners("default_model: digits"),
        ["c.yaml:2: default_model: unknown model 'digits' (there are none)"],
    ),
    "duplicate_keys": (
        with_listeners("models: {}\nserver:\n  name: a\n  id: b\n  name: c\nmodels: {}"),
        [
            "c.yaml:6: server.name: is repeated, first on line 4",
            "c.yaml:7: models: is repeated, first on line 2",
        ],
    ),
    "keys_that_yaml_reads_as_something_else": (
        with_listeners(f"models:\n  no: {{backend: identity, signature: {STATED}}}"),
        ["c.yaml:3: models.no: YAML does not read this key as text: put it in quotes"],
    ),
    "long_and_odd_text": (
        with_listeners('models: "a\\tb\\nü%s"' % ("x" * 50)),
        [f"c.yaml:2: models: must be a mapping, not the text 'a\\tb\\nü{'x' * 35}...'"],
    ),
    "not_yaml": (
        with_listeners("models: [{}"),
        [
            "c.yaml:2: not valid YAML: while parsing a flow sequence, expected ',' or ']', "
            "but got '<stream end>'"
        ],
    ),
    "two_documents": (
        "a: 1\n---\nb: 2",
        ["c.yaml:2: not valid YAML: expected a single document in the stream, but found another document"],
    ),
    "a_tag": (
        "a: !!python/object:os.system {}\nb: !secret x",
        [
            "c.yaml:2: not valid YAML: could not determine a constructor for the tag '!secret'",
        ],
    ),
    "no_such_day": ("a: 2024-13-45", ["c.yaml:1: not valid YAML: '2024-13-45': month must be in 1..12"]),
    "a_mapping_as_key": ("? {a: b}\n: c", ["c.yaml:1: not valid YAML: a key must be text"]),
    "a_value_in_itself": ("a: &a [*a]", ["c.yaml:1: not valid YAML: a value contains itself"]),
    "too_deep": ("a: " + "[" * 10_000, ["c.yaml: not valid YAML: nested too deeply"]),
    "control_characters": ("a: b\nc: \x01", ["c.yaml:2: not valid YAML: character U+0001 is not allowed"]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str) -> None:
    text, lines = BROKEN[name]
    assert errors(text) == lines


def test_a_bad_entry_hides_no_other_error() -> None:
    text = with_listeners(
        """\
        models:
          a: {upstream: broken}
          b: {upstream: other}
        upstreams:
          broken: {dialect: oip}
        default_model: a
        """
    )
    assert errors(text) == [
        "c.yaml:4: models.b.upstream: unknown upstream 'other' (allowed: broken)",
        "c.yaml:6: upstreams.broken.transport: is missing",
        "c.yaml:6: upstreams.broken.urls: is missing",
    ]


def test_models_of_a_repository_are_known(tmp_path: Path) -> None:
    for folder in ("digits", "simple", ".hidden"):
        (tmp_path / folder).mkdir()
    (tmp_path / "labels.txt").touch()
    text = with_listeners("model_repository: [{path: %s, load: %s}]\ndefault_model: %s")
    assert read(text % (tmp_path, '"*"', "simple")).default_model == "simple"
    assert errors(text % (tmp_path, '"*"', ".hidden")) == [
        "c.yaml:3: default_model: unknown model '.hidden' (allowed: digits, simple)"
    ]
    assert errors(text % (tmp_path, "[digits]", "simple")) == [
        "c.yaml:3: default_model: unknown model 'simple' (allowed: digits)"
    ]
    assert errors(text % (tmp_path, "[digit]", "digits")) == [
        f"c.yaml:2: model_repository[0].load: unknown model of '{tmp_path}' 'digit'; did you mean 'digits'? "
        "(allowed: digits, simple)",
        "c.yaml:3: default_model: unknown model 'digits' (there are none)",
    ]
    assert errors(text % (tmp_path, "all", "digits"))[0] == (
        'c.yaml:2: model_repository[0].load: must be "*" or a list of model names'
    )


def test_repository_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "models").mkdir()
    text = with_listeners("model_repository: [{path: %s, control: %s}]\ndefault_model: any")
    # which models there are is not known then, so nothing is said of default_model
    assert errors(text % ("nowhere", "pull")) == [
        f"c.yaml:2: model_repository[0].path: 'nowhere' does not exist (relative paths start at {tmp_path})",
        "c.yaml:2: model_repository[0].control: unknown value 'pull'; did you mean 'poll'? "
        "(allowed: none, explicit, poll)",
    ]
    assert errors(text % ("file", "none")) == [
        "c.yaml:2: model_repository[0].path: 'file' is no folder that can be read: Not a directory"
    ]
    assert errors(with_listeners(r'model_repository: [{path: "a\0b", load: 5}, {path: 5}, {}]'))[1:] == [
        'c.yaml:2: model_repository[0].load: must be "*" or a list of model names',
        "c.yaml:2: model_repository[1].path: must be text, not the number 5",
        "c.yaml:2: model_repository[2].path: is missing",
    ]
    with_one = read(with_listeners("model_repository: [{path: models, control: explicit}]"))
    assert with_one.model_repository[0].name == "models"
    assert with_one.model_repository[0].models == ()


def test_defaults() -> None:
    config = read('listeners: [{listen: ":0", transport: http}, {listen: ":0", transport: grpc}]')
    http, grpc = config.listeners
    assert (http.dialects, grpc.dialects) == (("oip", "graphpipe"), ("oip",))
    assert (http.max_request_bytes, grpc.max_request_bytes) == (64 * 2**20, 2**31 - 1)
    assert http.flavors == FLAVORS
    assert FLAVORS.items() >= {"oip": "triton", "grps": "py"}.items()
    assert config.server.id == "inference:0"
    assert config.admin is None
    assert config.models == {}


def test_everything_stated() -> None:
    config = read(
        """\
        server: {name: bridge, log_format: json, drain_secs: 0}
        listeners:
          - &http {listen: "127.0.0.1:81", transport: http, dialects: [graphpipe], max_request_bytes: 0x400}
          - {<<: *http, listen: "unix:run/g.sock", default_model: resnet50}
        models:
          resnet50:
            upstream: triton
            inputs: {data: INPUT0}
            format: {data: FORMAT_NCHW}
            signature:
              inputs: [{name: data, datatype: FP16, shape: [-1, 3]}]
              outputs: [{name: prob, datatype: FP32, shape: [-1, 2]}]
              max_batch_size: 8
              labels: {prob: [cat, dog]}
        upstreams:
          triton: {dialect: oip, transport: http, urls: ["http://host/base", "unix:x"], flavor: kserve}
        routes:
          - {match: {model: "resnet*", listener: "127.0.0.1:81"}, to: resnet50}
        """
    )
    merged = config.listeners[1]
    assert (merged.listen, merged.dialects, merged.max_request_bytes) == (
        "unix:run/g.sock",
        ("graphpipe",),
        1024,
    )
    model = config.models["resnet50"]
    assert model.signature is not None
    signature = model.signature.build()
    assert signature.max_batch_size == 8
    assert signature.inputs[0].datatype is Datatype.FP16
    assert signature.inputs[0].shape == (-1, 3)
    assert signature.outputs[0].labels == ("cat", "dog")
    assert model.format == {"data": "FORMAT_NCHW"}
    assert config.routes[0].match.dialect is None


def test_timeouts_and_http2() -> None:
    config = read(
        """\
        listeners:
          - listen: ":0"
            transport: grpc
            idle_timeout_secs: 1.0
            header_timeout_secs: 2.0
            body_timeout_secs: 3.0
            write_timeout_secs: 4.0
            min_bytes_per_sec: 5
            http2:
              max_concurrent_streams: 5
              max_header_list_bytes: 6000
              initial_stream_window_bytes: 70000
              initial_connection_window_bytes: 80000
              keepalive_secs: 9.0
              keepalive_timeout_secs: 10.0
          - {listen: ":0", transport: http}
        """
    )
    stated, default = config.listeners
    assert stated.timeouts == Timeouts(1.0, 2.0, 3.0, 4.0, 5)
    assert stated.http2.build() == Http2Options(5, 6000, 70_000, 80_000, 9.0, 10.0)
    assert (default.timeouts, default.http2.build()) == (Timeouts(), Http2Options())


def test_predict_of_ones_own() -> None:
    assert read(LISTENERS).grps.build() == PredictOptions()
    stated = read(
        with_listeners(
            """\
            grps:
              customized_predict_http:
                path: /v1/chat/completions
                customized_body: true
                streaming_ctrl: {ctrl_mode: body_param, ctrl_key: stream, res_content_type: text/event-stream}
            """
        )
    )
    assert stated.grps.build() == PredictOptions(
        "/v1/chat/completions", True, StreamingControl("body_param", "stream", "text/event-stream")
    )


def test_an_error_in_merged_keys_is_reported_at_its_place() -> None:
    text = """\
        listeners:
          - &http
            listen: ":0"
            transport: htpt
          - <<: *http
            listen: ":0"
        """
    wrong = "unknown value 'htpt'; did you mean 'http'? (allowed: http, grpc, brpc, tcp, any)"
    assert errors(text) == [
        f"c.yaml:4: listeners[0].transport: {wrong}",
        f"c.yaml:4: listeners[1].transport: {wrong}",
    ]


def test_nothing_can_be_changed() -> None:
    config = read(LISTENERS)
    with pytest.raises(ValidationError):
        config.server.name = "other"  # type: ignore[misc]


def test_options_belong_into_a_document() -> None:
    with pytest.raises(TypeError, match="validated by"):
        ListenerOptions(listen=":0", transport="http")


def test_a_dialect_that_is_added_is_spoken_where_a_listener_lists_it(monkeypatch: pytest.MonkeyPatch) -> None:
    added = replace(DIALECTS["oip"], name="added", manifest=Manifest("Added"))
    monkeypatch.setitem(DIALECTS, "added", added)
    config = parse(
        '{listeners: [{listen: ":0", transport: http}, {listen: ":0", transport: http, dialects: [added]}]}'
    )
    assert config.listeners[0].dialects == ("oip", "graphpipe", "trtis", "grps")
    assert config.listeners[1].dialects == ("added",)


def test_options_of_a_dialect_that_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    class AddedOptions(Section):
        """A section of its own."""

        word: str = "none"

    class AddedListenerOptions(Section):
        """Keys of a listener."""

        added_word: str = "none"

    manifest = Manifest("Added", section=AddedOptions, listener=AddedListenerOptions)

    def configure(section: Any, listener: Any) -> Dialect:
        http = replace(added.bindings["http"], prefixes=(section.word, listener.added_word))
        return replace(added, bindings={"http": http})

    added = replace(DIALECTS["oip"], name="added", manifest=manifest, configure=configure)
    monkeypatch.setitem(DIALECTS, "added", added)
    config = parse(
        """{added: {word: one}, listeners: [
            {listen: ":0", transport: http, dialects: [added], added_word: two, graphpipe_errors: inband}]}"""
    )
    (binding,) = bindings_of(config, config.listeners[0])
    assert binding.prefixes == ("one", "two")
    with pytest.raises(ConfigError) as raised:
        parse('{added: {wort: one}, listeners: [{listen: ":0", transport: http, adedd_word: two}]}')
    assert [line.partition(" (")[0] for line in raised.value.lines] == [
        "config:1: listeners[0].adedd_word: unknown key 'adedd_word'; did you mean 'added_word'?",
        "config:1: added.wort: unknown key 'wort'; did you mean 'word'?",
    ]


def test_a_configuration_is_pickled_with_the_options_of_dialects() -> None:
    config = parse('{listeners: [{listen: ":0", transport: http, graphpipe_errors: inband}]}')
    assert pickle.loads(pickle.dumps(config)) == config


OTHER_METHOD = replace(DIALECTS["oip"].bindings["http"].endpoints[0], method="PATCH")
OTHER_PATH = replace(DIALECTS["oip"].bindings["http"].endpoints[0], path="/of/its/own")
PAGE = replace(OTHER_PATH, method="GET", path="/")


@pytest.mark.parametrize(
    ("transport", "beside", "endpoints", "what"),
    [
        ("http", "oip", DIALECTS["oip"].bindings["http"].endpoints[:1], "GET /v2"),
        (
            "http",
            "oip",
            (replace(OTHER_PATH, path="/v2/models/{name}/ready"),),
            "GET /v2/models/{name}/ready",
        ),
        ("http", "oip", (OTHER_METHOD, OTHER_PATH, replace(OTHER_PATH, path="/v2/{all}")), None),
        ("http", "grps", (PAGE,), None),
        ("http", "grps", (replace(PAGE, page=True),), "GET /"),
        ("http", "graphpipe", (PAGE,), "GET /"),
        ("http", "graphpipe", (replace(PAGE, path="*"),), None),
        (
            "grpc",
            "oip",
            DIALECTS["oip"].bindings["grpc"].endpoints[:1],
            DIALECTS["oip"].bindings["grpc"].endpoints[0].method,
        ),
        (
            "brpc",
            "grps",
            (replace(DIALECTS["grps"].bindings["brpc"].endpoints[0], service="other.GrpsBrpcService"),),
            "GrpsBrpcService/Predict",
        ),
        ("tcp", "graphpipe", DIALECTS["graphpipe"].bindings["tcp"].endpoints, "messages over tcp"),
    ],
)
def test_two_dialects_that_answer_the_same(
    monkeypatch: pytest.MonkeyPatch, transport: str, beside: str, endpoints: Any, what: str | None
) -> None:
    capability = DIALECTS["oip"].bindings["http"].capability
    added = Dialect.of(Binding("added", transport, capability, endpoints))
    monkeypatch.setitem(DIALECTS, "added", added)
    text = f'{{listeners: [\n{{listen: ":0", transport: {transport}, dialects: [{beside}, added]}}]}}'
    if what is None:
        assert parse(text)
        return
    with pytest.raises(ConfigError) as raised:
        parse(text)
    assert raised.value.lines == [
        f"config:2: listeners[0].dialects: '{beside}' and 'added' both answer {what}"
    ]


def test_files(tmp_path: Path) -> None:
    good, binary, missing = tmp_path / "good.yaml", tmp_path / "binary.yaml", tmp_path / "missing.yaml"
    good.write_text(LISTENERS)
    binary.write_bytes(b"\xff\xfe\x00")
    assert load(good).listeners[0].listen == "127.0.0.1:0"
    for path, reason in ((binary, "not UTF-8 text"), (missing, "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=reason) as raised:
            load(path)
        assert raised.value.lines[0].startswith(f"{path}: cannot be read: ")


def test_this_installation() -> None:
    present = Installation.present()
    assert present.serves["graphpipe"] == BARE
    assert present.calls["graphpipe"] == BARE
    assert present.backends["onnxruntime"]
    assert not present.backends["identity"]


@pytest.mark.parametrize("wide", ["0.0.0.0:8000", ":8000"])
def test_every_interface_takes_the_port_of_each(wide: str) -> None:
    """At start the second one would fail with `Address already in use`."""
    text = f"""\
    listeners:
      - {{listen: "127.0.0.1:8000", transport: http}}
      - {{listen: "127.0.0.1:8001", transport: http}}
      - {{listen: "{wide}", transport: http}}
    admin: {{listen: "127.0.0.2:8000"}}
    """
    said = f"is taken by the listener at {wide}, which binds every interface"
    assert errors(text) == [
        f"c.yaml:2: listeners[0].listen: 127.0.0.1:8000 {said}",
        f"c.yaml:5: admin.listen: 127.0.0.2:8000 {said}",
    ]
