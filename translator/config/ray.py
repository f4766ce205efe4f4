"""The schema of Ray: the cluster, and what a model with ``backend: ray`` states about its deployment."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from interlingua.protocols.section import Bytes, Seconds, Section, Text
from interlingua.runtime.ray_serve.options import (
    LOCAL,
    Autoscaling,
    ClusterOptions,
    DeploymentOptions,
)

CLUSTER = ClusterOptions()
SCALING = Autoscaling(1, 1)
DEPLOYED = DeploymentOptions()

Amount = Annotated[float, Field(ge=0)]


class RayOptions(Section):
    """The Ray cluster of the models with `backend: ray`. Needs the extra `ray`. A program that reaches the
    ports of a Ray cluster can execute code there."""

    address: Text = LOCAL
    """`local` starts a cluster on this machine, which ends with the daemon; else the address of a cluster,
    `host:port`, of which this machine has to be a node (`ray start --address=...`), or `auto` for the one
    that runs on this machine."""
    namespace: Text = CLUSTER.namespace
    """Ray's namespace of the daemon. The application of a model in Serve is called `NAMESPACE.MODEL`: daemons
    with the same namespace use the same deployments."""
    shared: bool = CLUSTER.shared
    """Whether other daemons use the same deployments. Then they stay when this one stops or no longer has the
    model; remove them with `serve delete`."""
    bind: str = CLUSTER.bind
    """With `address: local`: the address of this machine that the processes of Ray bind. With any other than
    127.0.0.1 some ports of Ray are open on every interface."""
    cpus: Annotated[int, Field(ge=1)] | None = None
    """With `address: local`: the number of CPUs that replicas can reserve. The default is that of the
    machine."""
    object_store_bytes: Annotated[int, Field(ge=80 << 20)] | None = None
    """With `address: local`: the memory of the object store. The default is Ray's, 30 % of the memory."""
    request_timeout_secs: Seconds = CLUSTER.request_timeout_secs
    """The time for an answer of a replica, the wait for one included, for requests without an earlier
    deadline; of a stream the time between two answers."""
    load_timeout_secs: Seconds = CLUSTER.load_timeout_secs
    """The time for the cluster to be reached, and for the first replica of a model to be ready."""

    @field_validator("bind")
    @classmethod
    def _an_address(cls, value: str) -> str:
        try:
            ip_address(value)
        except ValueError:
            raise ValueError(f"'{value}' is not an address, such as 127.0.0.1") from None
        return value

    @field_validator("bind", "cpus", "object_store_bytes")
    @classmethod
    def _of_a_local_one(cls, value: object, info: ValidationInfo) -> object:
        address = info.data.get("address", LOCAL)
        if value is not None and address != LOCAL and value != CLUSTER.bind:
            raise ValueError(f"is for address: local: the cluster at {address} has its own")
        return value

    def build(self) -> ClusterOptions:
        return ClusterOptions(
            self.address,
            self.namespace,
            self.bind,
            self.cpus or 0,
            self.object_store_bytes or 0,
            self.shared,
            self.request_timeout_secs,
            self.load_timeout_secs,
        )


class ReplicasOptions(Section):
    """The number of replicas by load."""

    min: Annotated[int, Field(ge=1)] = 1
    """The least number of replicas."""
    max: Annotated[int, Field(ge=1)]
    """The greatest number of replicas."""
    target_ongoing: Annotated[float, Field(gt=0)] = SCALING.target_ongoing
    """The number of requests under way per replica that Serve scales to."""
    up_delay_secs: Amount = SCALING.up_delay_secs
    """How long there have to be more before replicas are added."""
    down_delay_secs: Amount = SCALING.down_delay_secs
    """How long there have to be fewer before replicas are removed."""
    window_secs: Seconds = SCALING.window_secs
    """The time over which requests under way are averaged."""

    @field_validator("max")
    @classmethod
    def _not_less(cls, most: int, info: ValidationInfo) -> int:
        least = info.data.get("min", 1)
        if most < least:
            raise ValueError(f"must not be less than min, which is {least}")
        return most

    def build(self) -> int | Autoscaling:
        if self.min == self.max:
            return self.max
        return Autoscaling(
            self.min,
            self.max,
            self.target_ongoing,
            self.up_delay_secs,
            self.down_delay_secs,
            self.window_secs,
        )


class ResourcesOptions(Section):
    """What each replica reserves of its node."""

    cpus: Amount = DEPLOYED.cpus
    """CPUs; a part of one is possible. Ray counts them, and does not limit a replica to them."""
    gpus: Amount = DEPLOYED.gpus
    """GPUs; a part of one is possible. A replica sees its own alone."""
    memory_bytes: Bytes | None = None
    """Memory. The default reserves none."""
    custom: dict[Text, Amount] = Field(default={})
    """Further resources by the names that nodes state (`ray start --resources`)."""


class PlacementOptions(Section):
    """The nodes that replicas run on."""

    max_per_node: Annotated[int, Field(ge=1, le=100)] | None = None
    """The maximum number of replicas on one node. The default is no limit."""
    labels: dict[Text, str] = Field(default={})
    """Labels that a node has to have (`ray start --labels`)."""


def _number(value: Any) -> Any:
    """A number of replicas, which does not follow the load, as its bounds."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return {"min": value, "max": value} if whole else value


Replicas = Annotated[
    ReplicasOptions,
    BeforeValidator(_number, json_schema_input_type=Annotated[int, Field(ge=1)] | ReplicasOptions),
]


def deployment(
    cluster: RayOptions | None,
    replicas: ReplicasOptions | None,
    resources: ResourcesOptions | None,
    placement: PlacementOptions | None,
    max_ongoing: int | None,
    max_queued: int | None,
) -> DeploymentOptions:
    """What the keys of a model state, with the defaults for None."""
    reserved, place = resources or ResourcesOptions(), placement or PlacementOptions()
    return DeploymentOptions(
        CLUSTER if cluster is None else cluster.build(),
        DEPLOYED.replicas if replicas is None else replicas.build(),
        reserved.cpus,
        reserved.gpus,
        reserved.memory_bytes or 0,
        reserved.custom,
        max_ongoing or DEPLOYED.max_ongoing,
        DEPLOYED.max_queued if max_queued is None else max_queued,
        place.max_per_node or 0,
        place.labels,
    )
