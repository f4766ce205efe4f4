"""Permits the operations of one listener to its callers, by the class of the operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from interlingua.schemas import Context, ErrorCode, InferenceError
from interlingua.schemas.errors import RESTRICTED_HEADER
from interlingua.translator.access.addresses import PeerAddress, is_local, peer_address
from interlingua.translator.access.authentication import Authenticator
from interlingua.translator.access.classes import PRIVILEGED, OperationClass
from interlingua.translator.access.cross_site import is_cross_site
from interlingua.translator.access.grants import Grants, read_grants
from interlingua.translator.access.hosts import PermittedHosts
from interlingua.translator.access.proxies import TrustedProxies
from interlingua.translator.access.refusals import RefusalRecords, record_failure

_LOCAL_HOSTS = PermittedHosts()
"""A browser on this machine is local too: a page that rebinds its domain to this machine is not."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller at ``address``; ``key`` is the header with the secret that permits it, if one does;
    ``identity`` is its name, if it has authenticated."""

    address: PeerAddress
    key: str = ""
    identity: str | None = None

    def facts(self) -> Mapping[str, str]:
        """The fields of the caller for the log."""
        facts = {"caller": "unknown" if self.address is None else str(self.address)}
        if self.identity is not None:
            facts["identity"] = self.identity
        return {**facts, "key": self.key} if self.key else facts


@dataclass(frozen=True, slots=True)
class Authorization:
    """The ``grants`` of the listener at ``listener``, behind ``proxies``. Pages of other sites may request
    privileged operations if their origins are in ``origins``. ``unrestricted`` are the classes that need no
    check, for every request; ``refusals`` are those that the audit log records. With an ``authenticator``
    call :meth:`authenticate` before anything else."""

    listener: str = ""
    grants: Grants = field(default_factory=lambda: read_grants({}))
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    origins: frozenset[str] = frozenset()
    authenticator: Authenticator | None = field(default=None, compare=False)
    refusals: RefusalRecords = field(default_factory=RefusalRecords, compare=False)
    unrestricted: frozenset[OperationClass] = field(init=False)

    def __post_init__(self) -> None:
        anyone = frozenset(name for name, grant in self.grants.items() if grant.anyone)
        object.__setattr__(self, "unrestricted", anyone - PRIVILEGED)

    def authenticate(self, context: Context) -> None:
        """Set the identity of a caller with credentials. Raises UNAUTHENTICATED, which the audit log records
        now and then."""
        if self.authenticator is None:
            return
        try:
            self.authenticator.identify(context)
        except InferenceError as error:
            record_failure(self.listener, self.caller(context).facts(), error.message, self.refusals)
            raise

    def caller(self, context: Context) -> Caller:
        """The caller of a request, by its address and identity."""
        peer = peer_address(context.peer, self.listener)
        return Caller(self.proxies.client(peer, context.headers), identity=context.identity)

    def trusts(self, peer: str) -> bool:
        """Whether the proxy ``peer`` may report the address of its client."""
        return self.proxies.covers(peer_address(peer, self.listener))

    def is_local(self, context: Context) -> bool:
        """Whether the caller of a request is on this machine."""
        return is_local(self.caller(context).address)

    def admit(self, requested: OperationClass, context: Context) -> Caller:
        """The caller, who may request operations of the class ``requested``. Raises FORBIDDEN, and
        UNAUTHENTICATED for one without an identity where clients with one are permitted."""
        if (
            requested in PRIVILEGED
            and is_cross_site(context.headers)
            and context.headers.get("origin") not in self.origins
        ):
            raise InferenceError(
                ErrorCode.FORBIDDEN, f"operations of class '{requested}' are refused to pages of other sites"
            )
        grant, caller = self.grants[requested], self.caller(context)
        if grant.covers(caller.address):
            return caller
        if grant.covers_local(caller.address):
            if requested in PRIVILEGED and not _LOCAL_HOSTS.permit(context.headers.get("host", "")):
                text = f"operations of class '{requested}' are for local callers and local host names"
                raise InferenceError(ErrorCode.FORBIDDEN, text)
            return caller
        if grant.covers_user(context.identity):
            return caller
        key = grant.key(context.headers)
        if key:
            return Caller(caller.address, key, context.identity)
        if grant.users and not grant.keys and context.identity is None:
            text = f"operations of class '{requested}' need credentials"
            raise InferenceError(ErrorCode.UNAUTHENTICATED, text)
        raise _refusal(requested, [key.header for key in grant.keys])


def _refusal(requested: OperationClass, headers: Iterable[str]) -> InferenceError:
    for header in headers:
        # Triton's text, which its clients know
        text = f"This API is restricted, expecting header '{header}' (operations of class '{requested}')"
        return InferenceError(ErrorCode.FORBIDDEN, text, details={RESTRICTED_HEADER: header})
    text = f"this listener does not permit operations of class '{requested}' to this caller"
    return InferenceError(ErrorCode.FORBIDDEN, text)
