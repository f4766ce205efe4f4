"""From files to a model on Ray: the counterpart of ``repository.files.load_model``.

The replicas load the files, which have to be under the same path on every node. The daemon looks at their
names and times alone, and serves by what a replica reports.
"""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.models.model import LocalModel
from interlingua.runtime.ray_serve import cluster as clusters
from interlingua.runtime.ray_serve.cluster import Cluster
from interlingua.runtime.ray_serve.deployment import Plan, ServeDeployment, generation_of
from interlingua.runtime.ray_serve.options import ClusterOptions
from interlingua.runtime.ray_serve.version import RayVersion
from interlingua.runtime.repository.files import ModelSource, keeps_state
from interlingua.runtime.repository.snapshot import Origin
from interlingua.runtime.target import Target

_users: Counter[tuple[ServeDeployment, str]] = Counter()
"""How many versions use a deployment, by the generation of its files."""

_lock = threading.Lock()


def load_model(source: ModelSource, before: Target | None) -> Target:
    """Deploy the model of ``source``, in place of ``before`` if it is of that name. Returns ``before`` itself
    if nothing has changed. Raises ``LoadError``; then ``before`` stays. Blocks until a replica is ready."""
    options = source.ray
    assert options is not None, "the caller has looked"  # noqa: S101
    assert source.path is not None, "the configuration requires it"  # noqa: S101
    try:
        origin = Origin(source, source.snapshot())
        stateful = keeps_state(source)
    except OSError as error:
        raise LoadError(str(error)) from error
    if before is not None and before.origin == origin:
        return before
    cluster = clusters.acquire(options.cluster)
    try:
        cluster.connect()
        deployment = _deployment(source.name, cluster)
        generation = generation_of(source, origin.files)
        with _lock:
            known = [each for (one, each), users in _users.items() if one is deployment and users]
        generations = (*dict.fromkeys(each for each in known if each != generation), generation)
        facts = deployment.deploy(Plan(source, options, generations, stateful))
        versions = []
        for each in facts.versions:
            clusters.acquire(options.cluster)
            with _lock:
                _users[deployment, generation] += 1
            release = partial(_release, deployment, generation, options.cluster)
            versions.append(RayVersion(deployment, each, generation, release))
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


def _deployment(name: str, cluster: Cluster) -> ServeDeployment:
    with cluster.lock:
        found = cluster.deployments.get(name)
        if found is None:
            found = cluster.deployments[name] = ServeDeployment(name, cluster)
        return found


def _release(deployment: ServeDeployment, generation: str, options: ClusterOptions) -> None:
    """A version uses the deployment no more. Without any the deployment is deleted, and after that of the
    last model the connection is closed. Blocks."""
    with _lock:
        _users[deployment, generation] -= 1
        if not _users[deployment, generation]:
            del _users[deployment, generation]
        left = [each for one, each in _users if one is deployment]
    if not left:
        with deployment.cluster.lock:
            deployment.cluster.deployments.pop(deployment.name, None)
        deployment.leave()
    elif len(left) == 1:
        deployment.retain(left[0])
    clusters.release(options)
