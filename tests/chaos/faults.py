"""The faults, as a table: how each begins and ends, and which targets it may affect."""

from __future__ import annotations

import io
import os
import resource
import signal
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from pathlib import Path

from interlingua.translator.cli import main
from tests.chaos.callers import NEW, Caller
from tests.chaos.world import World
from tests.waiting import until

Step = Callable[[World], Awaitable[None]]

_MEMORY_BYTES = 16 << 20
"""What the daemon gets on top of what it has."""

_LARGE_ELEMENTS = 12 << 20
"""Requests of 48 MiB, for which that is too little."""

_IDLE_CONNECTIONS = 64


@dataclass(frozen=True)
class Fault:
    """Callers of the ``affected`` targets may get errors; all others get their answers. Those of ``lost`` may lose
    requests. ``logs``: the errors that the daemon may log. ``clock``: the clock of the daemon must be movable."""

    name: str
    begin: Step
    end: Step
    affected: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    clock: bool = False


async def nothing(world: World) -> None:
    """For faults that end by themselves."""


# --- processes


async def kill_upstream(world: World) -> None:
    world.upstream.kill()


async def start_upstream(world: World) -> None:
    """Its successor runs already, so that callers do not compete with its start."""
    world.connect(world.successor)


async def stop_upstream(world: World) -> None:
    os.kill(world.upstream.pid, signal.SIGSTOP)


async def continue_upstream(world: World) -> None:
    os.kill(world.upstream.pid, signal.SIGCONT)


def signal_workers(number: signal.Signals) -> Step:
    """Send a signal to every process of a Python model."""

    async def send(world: World) -> None:
        workers = world.workers()
        assert workers, "a Python model has a process"
        for pid in workers:
            os.kill(pid, number)

    return send


# --- resources


async def fill_disk(world: World) -> None:
    """Leave no space for the log and the recording."""
    if world.disk_is_small:
        with (world.disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(bytes(4096))
    else:
        _limit(world, resource.RLIMIT_FSIZE, min(world.daemon.log.stat().st_size, world.tap.stat().st_size))


async def empty_disk(world: World) -> None:
    (world.disk / "filler").unlink(missing_ok=True)
    _unlimit(world, resource.RLIMIT_FSIZE)
    size = world.tap.stat().st_size
    await until(lambda: world.tap.stat().st_size != size, 60)  # it records again


async def take_descriptors(world: World) -> None:
    """Let the daemon have no more descriptors than it has, and try to take some."""
    open_files = len(list(Path(f"/proc/{world.daemon.pid}/fd").iterdir()))
    _limit(world, resource.RLIMIT_NOFILE, open_files)
    for address in [world.callers[0].address] * _IDLE_CONNECTIONS:
        host, _, port = address.rpartition(":")
        end = socket.socket()
        end.setblocking(False)
        with suppress(BlockingIOError):
            end.connect((host, int(port)))
        world.held.append(end)


async def return_descriptors(world: World) -> None:
    _unlimit(world, resource.RLIMIT_NOFILE)
    for end in world.held:
        end.close()
    world.held.clear()


async def take_memory(world: World) -> None:
    """Limit the memory of the daemon, and send it large requests."""
    status = Path(f"/proc/{world.daemon.pid}/status").read_text()
    size = int(status.split("VmSize:")[1].split()[0]) << 10
    _limit(world, resource.RLIMIT_AS, size + _MEMORY_BYTES)
    for caller in [each for each in world.callers if each.target == "local" and each.dialect == "oip"]:
        large = Caller(caller.dialect, caller.transport, "large", "local", caller.address, _LARGE_ELEMENTS)
        world.large[world.run(large)] = large


async def return_memory(world: World) -> None:
    await until(lambda: all(large.seen for large in world.large.values()), 60)
    _unlimit(world, resource.RLIMIT_AS)
    for task in world.large:
        task.cancel()


def _limit(world: World, kind: int, value: int) -> None:
    _, most = resource.prlimit(world.daemon.pid, kind)
    resource.prlimit(world.daemon.pid, kind, (value, most))


def _unlimit(world: World, kind: int) -> None:
    _, most = resource.prlimit(world.daemon.pid, kind)
    resource.prlimit(world.daemon.pid, kind, (most, most))


# --- files


def replace_file(name: str, content: bytes | None) -> Step:
    """Replace a file of the polled model by ``content``, or by its own first half."""

    async def replace(world: World) -> None:
        path = world.models / "polled" / name
        world.kept[path] = path.read_bytes()
        path.write_bytes(world.kept[path][: len(world.kept[path]) // 2] if content is None else content)

    return replace


async def restore_files(world: World) -> None:
    for path, content in world.kept.items():
        path.write_bytes(content)
    world.kept.clear()


async def replace_configuration(world: World) -> None:
    """A daemon reads its configuration at start: one that runs is not affected, one that starts reports it."""
    path = world.daemon.path
    world.kept[path] = path.read_bytes()
    path.write_bytes(b"\x00\xff: [garbage\n" * 100)
    with redirect_stderr(io.StringIO()) as text:
        code = main(["serve", "-c", str(path)])
    assert code == 2 and "config.yaml" in text.getvalue(), (code, text.getvalue())


# --- the clock and the network


def set_clock(secs: int) -> Step:
    """Move the clock of the daemon."""

    async def change(world: World) -> None:
        assert world.clock_offset is not None, "its clock can be moved"
        with world.clock_offset.open("r+b") as offset:
            offset.write(struct.pack("=q", secs))

    return change


def set_network(mode: str) -> Step:
    """Change what happens to connections to the upstream."""

    async def change(world: World) -> None:
        for proxy in world.proxies.values():
            proxy.set(mode)

    return change


FAULTS = (
    Fault("upstream killed", kill_upstream, start_upstream, ("remote",)),
    Fault("upstream stopped", stop_upstream, continue_upstream, ("remote",)),
    Fault(
        "worker killed", signal_workers(signal.SIGKILL), nothing, ("python",), logs=("model process exited",)
    ),
    Fault("worker stopped", signal_workers(signal.SIGSTOP), signal_workers(signal.SIGCONT), ("python",)),
    Fault("no space for log and tap", fill_disk, empty_disk, logs=("recording failed",)),
    Fault(
        "no descriptors",
        take_descriptors,
        return_descriptors,
        (NEW, "remote"),
        (NEW,),
        logs=("repository unreadable",),
    ),
    Fault("no memory", take_memory, return_memory, ("local", "python", "polled", "remote", NEW), (NEW,)),
    Fault(
        "model file truncated",
        replace_file("1/model.onnx", None),
        restore_files,
        logs=("model failed to load",),
    ),
    Fault(
        "model configuration garbage",
        replace_file("config.pbtxt", b"\xff{{"),
        restore_files,
        logs=("model failed to load",),
    ),
    Fault("configuration garbage", replace_configuration, restore_files),
    Fault("clock a day ahead", set_clock(86_400), set_clock(0), clock=True),
    Fault("clock a day back", set_clock(-86_400), set_clock(0), clock=True),
    Fault("network delays", set_network("delay"), set_network("")),
    Fault("network splits", set_network("split"), set_network("")),
    Fault("network drops connections", set_network("drop"), set_network(""), ("remote",)),
    Fault("network partition", set_network("partition"), set_network(""), ("remote",)),
)
