"""The deployment of one model: what Serve is to run, what runs now, and the calls in flight to it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import pickle
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

from ray import serve
from ray.exceptions import RayError
from ray.serve.config import RequestRouterConfig
from ray.serve.exceptions import RayServeException

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.ray_serve.cluster import WATCH_SECS, Cluster
from interlingua.runtime.ray_serve.connection import Application, ClusterView
from interlingua.runtime.ray_serve.facts import ModelFacts, ReplicaReport
from interlingua.runtime.ray_serve.options import DEPLOYMENT, DeploymentOptions
from interlingua.runtime.ray_serve.ownership import Mark, erase_mark, read_mark, write_mark
from interlingua.runtime.ray_serve.replica import Replica
from interlingua.runtime.ray_serve.sequences import SequenceCourses
from interlingua.runtime.repository.files import ModelSource
from interlingua.runtime.repository.snapshot import Snapshot
from interlingua.schemas import Readiness

_ROUTER = "interlingua.runtime.ray_serve.router.SequenceRouter"

_REPORT_SECS = 10.0

_MISSING_SECS = 3.0
"""A deployment that Serve does not know for so long is deployed again."""

_CAUSE = re.compile(r"LoadError: (.+)")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a deployment is to run: the ``generations`` of the files of ``source``, the newest last. Its
    sequences stay at one replica until they are idle for ``idle_secs``; 0 for a model without any."""

    source: ModelSource
    options: DeploymentOptions
    generations: tuple[str, ...]
    idle_secs: float

    @property
    def newest(self) -> str:
        return self.generations[-1]

    @property
    def stateful(self) -> bool:
        return self.idle_secs > 0

    def merged(self, other: Plan) -> Plan:
        """This plan, with the newest files of ``other``, whose daemon still requests them."""
        if other.newest in self.generations:
            return self
        return replace(self, generations=(other.newest, *self.generations))

    def without(self, other: Plan) -> Plan:
        """This plan, without those files of ``other`` that are not its newest ones."""
        kept = (each for each in self.generations[:-1] if each not in other.generations)
        return replace(self, generations=(*kept, self.newest))

    def build(self) -> serve.Deployment:
        """What Serve takes."""
        source = replace(self.source, ray=None, path=self.source.path and self.source.path.resolve())
        options = self.options.serve()
        if self.stateful:
            options["request_router_config"] = RequestRouterConfig(request_router_class=_ROUTER)
        return serve.deployment(Replica).options(
            name=DEPLOYMENT,
            # without a version Serve takes every deployment for other code, and restarts the replicas
            version=version("interlingua"),
            _internal=True,
            user_config={"source": pickle.dumps(source).hex(), "generations": list(self.generations)},
            max_constructor_retry_count=3,
            **options,
        )


def generation_of(source: ModelSource, files: Snapshot | None) -> str:
    """The name of ``files``, loaded as ``source`` states; how many replicas run it does not matter."""
    return hashlib.sha256(repr((replace(source, ray=None), files)).encode()).hexdigest()[:16]


class ServeDeployment:
    """Of model ``name`` on ``cluster``. Deploy it first. Thread-safe, except ``calls``: these belong to
    ``loop``, the event loop of the requests."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self.cluster = cluster
        self.application = f"{cluster.options.namespace}.{name}"
        self.plan: Plan | None = None
        self.state = Readiness(False, "not deployed yet")
        self.seen_now: Application | None = None
        self.infer: Any = None
        self.stream: Any = None
        self.calls: set[asyncio.Task[Any]] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.changed: Callable[[], None] = lambda: None
        self._courses: dict[tuple[str, str], SequenceCourses] = {}
        self._held: list[Plan] = []
        self._handle: Any = None
        self._missing_since = math.inf
        self._owner = cluster.token

    # --- what Serve is to run

    def hold(self, plan: Plan) -> None:
        """Have its files in force, and its options unless a later plan is held, until it is released as often
        as it is held."""
        with self.cluster.lock:
            self._held.append(plan)

    def release(self, plan: Plan) -> None:
        """Have what other plans hold. Without any, remove it from the cluster unless other daemons use it.
        Blocks."""
        with self.cluster.lock:
            self._held.remove(plan)
            if plan in self._held:
                return
            if not self._held:
                del self.cluster.deployments[self.name]
            before, wanted = self.plan, self._wanted() if self._held else None
            self.plan = wanted
            files = {each.newest for each in self._held}
            self._courses = {key: each for key, each in self._courses.items() if key[0] in files}
        if wanted is not None and wanted != before:
            self._try(partial(self._apply_if_owned, wanted))
        elif wanted is None and before is not None and not self.cluster.options.shared:
            self._try(partial(self._leave, before))

    def deploy(self) -> ModelFacts:
        """Have every replica run the plan that is held last. Blocks until one runs, and all that run have
        its files. Raises ``LoadError``, after which the plan before is in force, be it that of another
        daemon."""
        try:
            other = self.cluster.call(self._other)
        except Exception as error:
            # Ray documents no class of error for it
            raise LoadError(f"{self.name}: the control store of Ray: {_cause(str(error))}") from error
        with self.cluster.lock:
            before, plan = self.plan, self._wanted()
            if other is not None and other.plan is not None:
                plan = plan.merged(other.plan)
            self._owner = other.owner if other is not None and before is not None else self.cluster.token
            self.plan = plan
        try:
            self.cluster.call(partial(self._apply, plan))
            return self._await(plan)
        except Exception as error:
            # a model that does not load leaves what runs as it is
            with self.cluster.lock:
                self.plan = before
            self._try(partial(self._undo, other))
            raise error if isinstance(error, LoadError) else LoadError(f"{self.name}: {error}") from error

    def deploy_again(self) -> None:
        """Deploy what was deployed on a cluster that was lost. In the thread of the driver."""
        if self.plan is not None:
            self._apply(self.plan)

    def courses(self, plan: Plan, version: str) -> SequenceCourses:
        """The sequences of a version of the model in the files of ``plan``, which other plans with these
        files share."""
        with self.cluster.lock:
            key = plan.newest, version
            if key not in self._courses:
                self._courses[key] = SequenceCourses(self.name, plan.idle_secs)
            return self._courses[key]

    def _wanted(self) -> Plan:
        """The plan that is held last, with the files of all."""
        last = self._held[-1]
        others = dict.fromkeys(each.newest for each in self._held if each.newest != last.newest)
        return replace(last, generations=(*others, last.newest))

    def _other(self) -> Mark | None:
        """The mark of another daemon."""
        mark = read_mark(self.application)
        return None if mark is None or mark.owner == self.cluster.token else mark

    def _apply(self, plan: Plan) -> None:
        write_mark(self.application, Mark(self._owner, plan))
        handle = self._run(plan)
        if self._handle is None:
            # a handle that comes later gets no replicas until they change
            self._handle = handle
            self.infer = handle.options(method_name="infer")
            self.stream = handle.options(method_name="stream", stream=True)

    def _apply_if_owned(self, plan: Plan) -> None:
        mark = read_mark(self.application)
        if mark is not None and mark.owner == self._owner:
            self._apply(plan)

    def _run(self, plan: Plan) -> Any:
        """Have Serve run ``plan``. Returns the handle."""
        with warnings.catch_warnings():
            # Serve warns of every window below its own interval, which only an environment can state
            warnings.simplefilter("ignore", FutureWarning)
            target = serve.RunTarget(plan.build().bind(), name=self.application, route_prefix=None)
        (handle,) = serve.run_many([target], wait_for_applications_running=False)
        return handle

    def _undo(self, other: Mark | None) -> None:
        """Have Serve run what it ran before, which may be the plan of the ``other`` daemon."""
        if self.plan is not None:
            self._apply(self.plan)
        elif other is None:
            self._delete()
        elif other.plan is not None:
            write_mark(self.application, other)
            self._run(other.plan)

    def _leave(self, plan: Plan) -> None:
        """Delete it; but a successor keeps it, without the files of ``plan``."""
        if self.cluster.deployments.get(self.name) not in (None, self):
            return  # the model has come back
        other = self._other()
        if other is None:
            self._delete()
        elif other.plan is not None:
            kept = other.plan.without(plan)
            if kept != other.plan:
                write_mark(self.application, Mark(other.owner, kept))
                self._run(kept)

    def _delete(self) -> None:
        erase_mark(self.application)
        serve.delete(self.application, _blocking=False)

    def _try(self, change: Callable[[], None]) -> None:
        """Carry out ``change``, which fails if the cluster is lost. Blocks."""
        try:
            self.cluster.call(change)
        except Exception as error:
            # Ray documents no class of error for it
            facts = {"model": self.name, "reason": str(error)}
            _log.warning("Ray deployment not changed", extra={"facts": facts})

    def _await(self, plan: Plan) -> ModelFacts:
        end = time.monotonic() + self.cluster.options.load_timeout_secs
        why = "no replica runs yet"
        while time.monotonic() < end:
            application = self.cluster.look().applications.get(self.application)
            if application is not None:
                if application.status == "DEPLOY_FAILED":
                    raise LoadError(_cause(application.message))
                reports = self._reports_so_far() if application.running else []
                failures = [each.failed[plan.newest] for each in reports if plan.newest in each.failed]
                if failures:
                    raise LoadError(failures[0])
                if len(reports) >= len(application.running) > 0 and all(
                    plan.newest in each.models for each in reports
                ):
                    return reports[0].models[plan.newest]
                why = application.message or why
            time.sleep(WATCH_SECS / 4)
        raise LoadError(f"model '{self.name}' is not ready on Ray in time: {_cause(why)}")

    def _reports_so_far(self) -> list[ReplicaReport]:
        """Empty if the router here does not know the replicas yet, or one ends meanwhile."""
        try:
            return self.reports()
        except (RayServeException, RayError, TimeoutError) as error:
            _log.debug("Ray replicas not known yet", extra={"facts": {"reason": type(error).__name__}})
            return []

    # --- what runs

    def reports(self) -> list[ReplicaReport]:
        """The report of every replica. Blocks. Raises what Ray raises."""
        found: list[ReplicaReport] = self._handle.broadcast("report").results(timeout_s=_REPORT_SECS)
        return found

    def seen(self, view: ClusterView) -> None:
        """The cluster is as in ``view``."""
        application = self.seen_now = view.applications.get(self.application)
        if application is not None and application.running:
            self._missing_since = math.inf
            self._set(Readiness(True))
            return
        now = time.monotonic()
        self._missing_since = min(now, self._missing_since) if application is None else math.inf
        why = "Serve does not know it" if application is None else _cause(application.message)
        self._set(Readiness(False, f"model '{self.name}' has no replica that runs: {why or 'it starts'}"))
        if now - self._missing_since > _MISSING_SECS and self.plan is not None:
            # another program may have deleted it, or Serve started without its state
            self._missing_since = now
            self.cluster.submit(self.deploy_again)

    def lost(self, reason: str) -> None:
        """The cluster is lost: what runs fails."""
        self.seen_now = self._handle = None
        self._set(Readiness(False, reason))
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._cancel_calls)

    def _cancel_calls(self) -> None:
        for call in self.calls:
            call.cancel()

    def _set(self, state: Readiness) -> None:
        if state != self.state:
            self.state = state
            if self.loop is not None and not self.loop.is_closed():
                self.loop.call_soon_threadsafe(self.changed)


def _cause(message: str) -> str:
    """The reason in ``message``, which may have the traceback of a replica."""
    found = _CAUSE.findall(message)
    if found:
        return str(found[-1])
    lines = [line for line in message.strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
