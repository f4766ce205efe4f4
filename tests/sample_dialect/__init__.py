"""A dialect that the program does not have, in one folder: KServe's version 1, with tensors in base64.

    GET  /v1/models/{model}           {"name": …, "ready": …}
    GET  /v1/models/{model}/metadata  {"name": …, "versions": […], "inputs": […], "outputs": […], …}
    POST /v1/models/{model}:predict   {"inputs": {name: tensor}} -> {"outputs": {name: tensor}}

A tensor is ``{"datatype": …, "shape": […], "b64": …}``, an error ``{"error": …, "code": …}``.
"""

from __future__ import annotations

from interlingua.protocols.dialect import Binding, Dialect
from interlingua.protocols.manifest import Manifest
from tests.sample_dialect.capability import CAPABILITY
from tests.sample_dialect.client import CALLS
from tests.sample_dialect.server import ENDPOINTS, unmatched

DIALECT = Dialect.of(
    Binding("sample", "http", CAPABILITY, ENDPOINTS, CALLS, unmatched=unmatched, prefixes=("/v1/",)),
    manifest=Manifest("Sample v1", examples={"http": "curl -s http://{url}/v1/models/{model}"}),
)
