"""The two names of each tensor of an upstream's model: our clients' and the upstream's."""

from __future__ import annotations

from dataclasses import replace

from interlingua.runtime.models.renames import (
    Renames,
    refuse_hidden,
    renamed,
    renamed_signature,
    reversed_names,
)
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    InferRequest,
    InferResponse,
    RequestedOutput,
    Signature,
    Tensor,
)


class UpstreamNames:
    """``inputs`` and ``outputs`` of ``model`` map our clients' names to those of ``upstream``,
    ``inputs_back`` and ``outputs_back`` the other way."""

    def __init__(self, model: str, upstream: str, inputs: Renames | None, outputs: Renames | None) -> None:
        self.inputs: Renames = inputs or {}
        self.outputs: Renames = outputs or {}
        self.inputs_back = reversed_names(self.inputs)
        self.outputs_back = reversed_names(self.outputs)
        self._model = model
        self._upstream = upstream

    def to_local(self, signature: Signature) -> Signature:
        return renamed_signature(signature, self.inputs_back, self.outputs_back)

    def to_remote(self, signature: Signature) -> Signature:
        return renamed_signature(signature, self.inputs, self.outputs)

    def to_upstream(self, request: InferRequest, remote: str) -> InferRequest:
        """``request`` to the upstream's model ``remote``, in its names. It requests raw outputs: classes are
        ranked here, from values that no server has rounded."""
        outputs = request.outputs
        if outputs and (self.outputs or any(each.classification for each in outputs)):
            names = self.outputs
            outputs = tuple(
                [replace(each, name=names.get(each.name, each.name), classification=0) for each in outputs]
            )
        inputs = renamed(request.inputs, self.inputs) if self.inputs else request.inputs
        if request.model == remote and inputs is request.inputs and outputs is request.outputs:
            return request
        return request.redirected(remote, inputs, outputs)

    def answered(self, response: InferResponse) -> tuple[Tensor, ...]:
        return renamed(response.outputs, self.outputs_back) if self.outputs_back else response.outputs

    def refuse_hidden(self, request: InferRequest) -> None:
        """Raise INVALID_TENSOR for a tensor under its upstream name, which clients do not know."""
        inputs = [tensor.name for tensor in request.inputs]
        outputs = [output.name for output in request.outputs or ()]
        refuse_hidden("input", inputs, self.inputs, self.inputs_back, self._model)
        refuse_hidden("output", outputs, self.outputs, self.outputs_back, self._model)

    def chosen(
        self,
        answered: tuple[Tensor, ...],
        requested: tuple[RequestedOutput, ...] | None,
        signature: Signature,
    ) -> tuple[Tensor, ...]:
        """The requested outputs, in signature order; some servers answer with all of them in any order.
        Raises BAD_UPSTREAM naming a missing one, INVALID_TENSOR if the model is not known to have it."""
        if len(answered) == 1 and (
            requested is None or (len(requested) == 1 and requested[0].name == answered[0].name)
        ):
            return answered
        by_name = {tensor.name: tensor for tensor in answered}
        if requested is not None:
            missing = [output.name for output in requested if output.name not in by_name]
            if missing:
                refuse_hidden("output", missing, self.outputs, self.outputs_back, self._model)
                # a server with a model of unknown outputs may ignore one that it does not have
                declared = missing[0] in signature.output_names
                raise InferenceError(
                    ErrorCode.BAD_UPSTREAM if declared else ErrorCode.INVALID_TENSOR,
                    f"upstream '{self._upstream}' answered without output '{missing[0]}' "
                    f"of model '{self._model}'",
                    origin=self._upstream,
                )
            by_name = {output.name: by_name[output.name] for output in requested}
        ordered = [by_name.pop(spec.name) for spec in signature.outputs if spec.name in by_name]
        return (*ordered, *by_name.values())

    def chosen_present(
        self,
        answer: InferResponse,
        requested: tuple[RequestedOutput, ...] | None,
        signature: Signature,
    ) -> tuple[Tensor, ...]:
        """As :meth:`chosen`, of an ``answer`` of a stream: not every one need have every output."""
        outputs = self.answered(answer)
        if requested is not None:
            present = {tensor.name for tensor in outputs}
            requested = tuple([output for output in requested if output.name in present])
        return self.chosen(outputs, requested, signature)
