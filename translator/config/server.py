"""The options of the daemon as a whole."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import Field, field_validator

from interlingua.protocols.section import Bytes, Seconds, Section, Text
from interlingua.runtime.repository.catalog import MAX_CLIENT_MODELS
from interlingua.runtime.shared_memory import MAX_BYTES, MAX_REGIONS
from interlingua.translator.config.references import UnixPath


class SharedMemoryOptions(Section):
    """POSIX shared memory that clients on this machine pass tensors in."""

    allow: Literal["local", "all", "none"] = "local"
    """The clients that may use it: callers from a loopback address or over a unix socket, all, or none.
    Such a client can read and write any shared memory that this process can open. A proxy on this machine
    makes its clients look local."""
    max_regions: Annotated[int, Field(ge=1)] = MAX_REGIONS
    """The maximum number of registered regions; each takes a file descriptor. Further registrations are
    refused."""
    max_bytes: Bytes = MAX_BYTES
    """The maximum size of registered regions together. Further registrations are refused."""


class ServerOptions(Section):
    """The daemon as a whole."""

    name: Text = "interlingua"
    """The name under which server metadata presents this server."""
    id: Text = "inference:0"
    """The identity of this process among its replicas, for dialects that have one (OIP and GraphPipe do
    not)."""
    strict_readiness: bool = True
    """The server is ready when every required model is; false: as soon as it answers."""
    ready_when_empty: bool = False
    """Whether a server without models is ready."""
    repository_poll_secs: Seconds = 15.0
    """The interval between polls of repositories with `control: poll`."""
    start_offline: bool = False
    """Report not ready until a client sets the server online (grps: `/grps/v1/health/online`). Requests
    are answered meanwhile."""
    offline_scope: Literal["grps", "all"] = "grps"
    """What a client of grps sets offline (`/grps/v1/health/offline`): the readiness of grps alone, or of all
    dialects and the admin address. `start_offline` and online always mean all."""
    response_cache_bytes: Annotated[int, Field(ge=0)] = 0
    """The size of the response cache, for models whose config.pbtxt has `response_cache { enable: true }`.
    0 is no cache."""
    shared_memory: SharedMemoryOptions = Field(default_factory=SharedMemoryOptions)
    """Tensors in shared memory instead of messages."""
    workers: Annotated[int, Field(ge=0, le=256)] | Literal["auto"] = 0
    """The number of front-end processes, which decode, route and encode; one more process has the models.
    0 is a server of one process, `auto` one front end less than there are CPUs in `cpus`, or else in the
    affinity mask and the quota of the control group."""
    cpus: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """The CPUs to run on, by number. With `workers`, as many front ends as there are run on the first ones,
    and the runtime process with the models on the others; with too few CPUs for that, all on all. The default
    is no affinity."""
    max_instances: Annotated[int, Field(ge=1)] = 64
    """The maximum number of instances that the configuration of a model in a repository may state. A model
    with more does not load. `instances` under `models` is not limited."""
    max_models: Annotated[int, Field(ge=1)] = MAX_CLIENT_MODELS
    """The maximum number of models that clients have loaded (`control: explicit`) and not unloaded. Further
    loads are refused. Models that are served from the start do not count."""
    max_inline_run_us: Annotated[int, Field(ge=0)] = 200
    """The longest run of a local model on the event loop instead of in a thread, in microseconds; 0 for none.
    Only for ONNX models and models of tables on the CPU; runs are measured."""
    plans: bool = True
    """Serve requests that repeat others by what is known of those, in fewer steps. With false every request
    takes every step: for diagnosis, since answers do not depend on it."""
    tune_allocator: bool = True
    """Make the C library keep large blocks instead of returning each to the system. Messages of several
    MiB then cost up to half as much; the process holds some memory in reserve."""
    max_inflight_requests: Annotated[int, Field(ge=1)] = 16384
    """The maximum number of requests in flight on all listeners together. Further inference requests are
    refused as overload; health and metadata are answered."""
    max_inflight_bytes: Bytes = 4294967296
    """The maximum size of the bodies of these requests together. A body that exceeds it is refused as
    overload, unless it is the only one. Bodies count decompressed."""
    handover_socket: UnixPath | None = None
    """The path of a unix socket at which `interlingua serve --take-over` receives the listening sockets of
    this daemon, which then stops; for processes of the same user. The default is none."""
    stalled_after_secs: Seconds = 30.0
    """How long the event loop may stall before `/health/live` of the admin address returns 503."""
    drain_secs: Annotated[float, Field(ge=0)] = 5.0
    """After the first signal to stop: how long to keep answering while reporting not ready, so that balancers
    choose other servers. A second signal ends the wait."""
    shutdown_timeout_secs: Annotated[float, Field(ge=0)] = 30.0
    """The time after draining for running requests to end and for clients to read the answers, before they
    are cut. A second signal cuts them."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level to log."""
    log_format: Literal["text", "json"] = "text"
    """Log lines for people, or one JSON object per line."""
    access_log: Literal["none", "errors", "all"] = "errors"
    """The requests that the access log has: none, those that fail (of many some), or all."""
    access_log_file: Text | None = None
    """A file for the access log, which is otherwise part of the log. It is opened again after it has been
    renamed. A relative path starts at the working directory of the process. The default is none."""
    audit_log: Text | None = None
    """A file for the audit log, which is part of the log too: one JSON object per privileged operation. It is
    opened again after it has been renamed. A relative path starts at the working directory of the process.
    The default is none."""

    @property
    def several_processes(self) -> bool:
        """Whether there are front ends."""
        return self.workers != 0

    @property
    def shares_files(self) -> bool:
        """Whether other processes write the same recordings: front ends, or a daemon that hands over."""
        return self.several_processes or self.handover_socket is not None

    @field_validator("cpus")
    @classmethod
    def _available(cls, cpus: tuple[int, ...]) -> tuple[int, ...]:
        available = os.sched_getaffinity(0)
        for cpu in cpus:
            if cpu not in available:
                known = ", ".join(map(str, sorted(available)))
                why = "is not available to this process" if cpu < (os.cpu_count() or 1) else "does not exist"
                raise ValueError(f"CPU {cpu} {why} (available: {known})")
            if cpus.count(cpu) > 1:
                raise ValueError(f"CPU {cpu} is repeated")
        return cpus
