"""The listeners of another configuration.

A listener that is equal, or differs only in what its pipeline decides, keeps its socket and its connections.
A changed one gets a new server on the same socket, so that no connection in the kernel's queue is lost, and
the old server retires as that of a removed listener does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from interlingua.protocols.transport.address import parse_address
from interlingua.protocols.transport.listener import Listener
from interlingua.protocols.transport.listening_socket import ListeningSocket
from interlingua.translator.assembly import Assembly
from interlingua.translator.config.options import Config, ListenerOptions
from interlingua.translator.listening import Listening, listening_of
from interlingua.translator.reload.differences import binds_itself, changed_keys, pairs, sections_of_dialects
from interlingua.translator.serving.pipeline import Pipeline

OF_THE_PIPELINE = frozenset(
    (
        *("allow", "default_model", "headers_as_parameters", "max_connections"),
        *("max_connections_per_address", "max_inflight_requests", "max_inflight_bytes"),
    )
)
"""The options that apply to open connections."""


@dataclass(slots=True)
class ListenerSuccession:
    """What replaces the listeners ``before`` of ``config_before``, for ``assembly``. It binds addresses, if
    there are no ``places`` for the listeners."""

    before: Sequence[Listening]
    config_before: Config
    assembly: Assembly
    places: Sequence[Listener] = ()
    now: list[Listening] = field(default_factory=list)
    fresh: list[Listening] = field(default_factory=list)
    leaving: list[Listening] = field(default_factory=list)
    _kept: list[tuple[Listening, ListenerOptions, Pipeline]] = field(default_factory=list)
    _opened: list[ListeningSocket] = field(default_factory=list)

    async def prepare(self) -> None:
        """Bind new addresses; the kernel queues their connections. Raises ``OSError`` that names the address,
        and for files of TLS."""
        config = self.assembly.config
        for old, new in pairs([each.options for each in self.before], config.listeners):
            known = None if old is None else self.before[old]
            if new is None:
                self.leaving += [] if known is None else [known]
                continue
            options = config.listeners[new]
            if known is not None and stays(self.config_before, config, known.options, options):
                self._kept.append((known, options, self.assembly.pipeline(options)))
                self.now.append(known)
                continue
            fresh = listening_of(
                self.assembly, options, self.places[new] if self.places else self._place(known, options)
            )
            self.now.append(fresh)
            self.fresh.append(fresh)
            self.leaving += [] if known is None else [known]
            if binds_itself(options):
                await fresh.start()

    def _place(self, known: Listening | None, options: ListenerOptions) -> Listener:
        address = parse_address(options.listen)
        if binds_itself(options):
            return Listener(address)
        old = None if known is None else known.place.socket
        if old is None:
            socket = ListeningSocket.open(address)
            socket.name = options.transport
            self._opened.append(socket)
        else:
            configured = None if old.configured is None else address
            socket = ListeningSocket(old.sock.dup(), configured, old.name, old.removes)
        return Listener(address, socket=socket)

    def commit(self) -> None:
        """Have open connections of the listeners that stay follow the new options."""
        for known, options, pipeline in self._kept:
            known.options = options
            known.pipeline.follow(pipeline)

    async def start(self) -> None:
        """Accept at the new ones."""
        for each in self.fresh:
            if not binds_itself(each.options):
                await each.start()
        assembly = self.assembly
        assembly.request_metrics[:] = [each.pipeline.request_metrics for each in self.now]
        assembly.loads[:] = [each.pipeline.load for each in self.now]
        assembly.is_bound([(each.options, each.address) for each in self.now])

    def leave(self) -> None:
        """Accept no longer at those that leave."""
        addresses = {each.address for each in self.fresh}
        for each in self.leaving:
            if each.place.socket is not None and each.address in addresses:
                each.place.socket.removes = False
            each.server.retire()

    async def abort(self) -> None:
        """Close the sockets that were opened."""
        for each in self.fresh:
            if binds_itself(each.options):
                await each.server.stop(0)
            elif each.place.socket is not None:
                each.place.socket.close()
        for socket in self._opened:
            socket.remove_file()


def stays(config_before: Config, config: Config, before: ListenerOptions, after: ListenerOptions) -> bool:
    """Whether a listener keeps its server."""
    if sections_of_dialects(config_before) != sections_of_dialects(config):
        return False
    return OF_THE_PIPELINE.issuperset(changed_keys(before, after))
