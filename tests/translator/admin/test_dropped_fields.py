"""Operators see what upstreams' dialects leave out of requests."""

from __future__ import annotations

import numpy as np

from interlingua.protocols.registry import DIALECTS
from interlingua.runtime.repository.catalog import ModelCatalog
from interlingua.runtime.upstream.dropped_fields import DroppedFields
from interlingua.schemas import InferRequest, Tensor
from interlingua.translator.admin.models import families
from tests.loopback import behind, echoing, serving
from tests.strategies import signature_of

X = Tensor.from_numpy("x", np.array([1], np.int32))
SIGNATURE = signature_of([X], [X.renamed("y")])


async def test_it_is_counted_by_model_and_kind() -> None:
    there = serving(echoing({"m": SIGNATURE}), "trtis")
    counted = DroppedFields("trtis", DIALECTS["trtis"].bindings["http"].capability)
    model = behind(there, "trtis", "http", "m", dropped_fields=counted)
    for identity in ("blue", "4711"):
        await model.infer(InferRequest("m", (X,), id=identity, parameters={"tag": "a"}))
    (family,) = (
        each
        for each in families(ModelCatalog({"m": model}, {}))
        if each.name == "interlingua_dropped_fields_total"
    )
    assert {(sample.labels["model"], sample.labels["what"]): sample.value for sample in family.samples} == {
        ("m", "id"): 1,
        ("m", "parameter"): 2,
        ("m", "sequence"): 0,
        ("m", "priority"): 0,
    }
