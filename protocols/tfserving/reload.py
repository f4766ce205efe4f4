"""``HandleReloadConfigRequest``: the list of all models that the server is to have.

Rules and texts are those of ``server_core.cc`` and ``model_service_impl.cc``. The files of a model determine
its engine, so its platform has no effect here, but must be there.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from interlingua.protocols.dialect import Action, Opened
from interlingua.protocols.protobuf_message import parse_bounded
from interlingua.protocols.tfserving.grpc_messages import fail, message_of
from interlingua.protocols.wire import GrpcAnswer, GrpcRequest
from interlingua.schemas import (
    ErrorCode,
    InferenceError,
    ListedModel,
    Operation,
    VersionPolicy,
    invalid_tensor,
    unsupported,
)

_UNKNOWN = 2
_OTHER = 2
"""The only model type that is not TensorFlow."""


def _listed(config: Any) -> ListedModel:
    """One model of the list. Raises INVALID_TENSOR, UNSUPPORTED for options that models here do not have."""
    name, path = config.name, config.base_path
    if not name:
        raise invalid_tensor("Illegal to list a model without a name")
    if config.model_type and config.model_platform:
        raise invalid_tensor(
            "Illegal setting both ModelServerConfig::model_type (deprecated) and "
            "ModelServerConfig::model_platform."
        )
    if config.model_type == _OTHER:
        raise invalid_tensor("ModelServerConfig::model_type choice 2 not supported.")
    if not (config.model_type or config.model_platform):
        raise invalid_tensor(
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
            "ModelServerConfig::model_platform."
        )
    if not path.startswith("/") and "://" not in path:
        raise invalid_tensor(
            f"Expected model {name} to have an absolute path or URI; got base_path()={path}", origin=name
        )
    if config.version_labels:
        raise unsupported(f"version_labels of model {name}: here routes give versions names", origin=name)
    if config.HasField("logging_config"):
        raise unsupported(f"logging_config of model {name}: here a tap records requests", origin=name)
    return ListedModel(name, path, _versions(config.model_version_policy))


def _versions(policy: Any) -> VersionPolicy | None:
    """The versions to serve; None without a choice. Raises INVALID_TENSOR."""
    choice = policy.WhichOneof("policy_choice")
    if choice is None:
        return None
    if choice == "all":
        return VersionPolicy(latest=0)
    if choice == "latest":
        # 0 is the number of a field that is not set
        return VersionPolicy(latest=policy.latest.num_versions or 1)
    if not policy.specific.versions:
        raise invalid_tensor("a specific version policy without versions")
    return VersionPolicy(specific=tuple(policy.specific.versions))


def _encode(opened: Opened[GrpcAnswer], result: None) -> GrpcAnswer:
    response = message_of("ReloadConfigResponse")()
    response.status.SetInParent()  # OK
    return GrpcAnswer(response.SerializeToString())


_RELOAD: Action[GrpcAnswer] = Action(Operation.MODELS_RELOAD, _encode)


def open_reload(request: GrpcRequest) -> Opened[GrpcAnswer]:
    """The list in ``request``. Raises INVALID_TENSOR."""
    config = parse_bounded(message_of("ReloadConfigRequest"), request.message).config
    if config.WhichOneof("config") != "model_config_list":
        raise invalid_tensor(
            "ServerModelConfig type not supported by HandleReloadConfigRequest. Only ModelConfigList is "
            "currently supported"
        )
    listed = tuple(_listed(each) for each in config.model_config_list.config)
    for name, times in Counter(model.name for model in listed).items():
        if times > 1:
            raise invalid_tensor(f"Illegal to list model {name} multiple times in config list", origin=name)
    return Opened(_RELOAD, argument=listed)


def fail_reload(request: GrpcRequest, opened: Opened[GrpcAnswer] | None, error: InferenceError) -> GrpcAnswer:
    """As every method; a model that cannot be loaded is UNKNOWN there."""
    # the models are those of the list, not one that was requested
    answer = fail(request, None, error)
    if error.code is ErrorCode.MODEL_FAILED:
        answer.code = _UNKNOWN
    return answer
