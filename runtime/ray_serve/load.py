"""From files to a model on Ray: the counterpart of ``repository.files.load_model``.

The replicas load the files, which have to be under the same path on every node. The daemon looks at their
names and times alone, and serves by what a replica reports.
"""

from __future__ import annotations

from functools import partial

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.ray_serve import cluster as clusters
from interlingua.runtime.ray_serve.cluster import Cluster
from interlingua.runtime.ray_serve.deployment import Plan, ServeDeployment, generation_of
from interlingua.runtime.ray_serve.facts import VersionFacts
from interlingua.runtime.ray_serve.options import DeploymentOptions
from interlingua.runtime.ray_serve.version import RayVersion
from interlingua.runtime.repository.files import ModelSource, sequence_idle_secs
from interlingua.runtime.repository.snapshot import Origin
from interlingua.runtime.target import Target


def load_model(source: ModelSource, options: DeploymentOptions, before: Target | None) -> Target:
    """Deploy the model of ``source``, by ``options``, in place of ``before`` if it is of that name. Returns
    ``before`` itself if nothing has changed. Raises ``LoadError``; then ``before`` stays. Blocks until a
    replica is ready."""
    try:
        origin = Origin(source, source.snapshot())
        idle_secs = sequence_idle_secs(source)
    except OSError as error:
        raise LoadError(str(error)) from error
    if before is not None and before.origin == origin:
        return before
    cluster = clusters.acquire(options.cluster)
    try:
        cluster.connect()
        plan = Plan(source, options, (generation_of(source, origin.files),), idle_secs)
        deployment = _deployment(plan, cluster)
        try:
            facts = deployment.deploy()
            versions = [_version(deployment, plan, each) for each in facts.versions]
        finally:
            deployment.release(plan)
        return LocalModel(
            source.name,
            versions,
            failed={int(number): reason for number, reason in facts.failed.items()},
            platform=facts.platform,
            description=source.description,
            parameters=source.parameters,
            config=facts.config,
            origin=origin,
        )
    finally:
        clusters.release(options.cluster)


def _version(deployment: ServeDeployment, plan: Plan, facts: VersionFacts) -> RayVersion:
    """The version of ``facts``, which holds ``plan`` and the connection until it is closed."""
    clusters.acquire(plan.options.cluster)
    deployment.hold(plan)
    return RayVersion(deployment, facts, plan, partial(_free, deployment, plan))


def _free(deployment: ServeDeployment, plan: Plan) -> None:
    """A version is closed. After the last one the connection is closed. Blocks."""
    deployment.release(plan)
    clusters.release(plan.options.cluster)


def _deployment(plan: Plan, cluster: Cluster) -> ServeDeployment:
    """That of the model of ``plan``, which it holds."""
    with cluster.lock:
        name = plan.source.name
        found = cluster.deployments.get(name)
        if found is None:
            found = cluster.deployments[name] = ServeDeployment(name, cluster)
        found.hold(plan)
        return found
