"""Who may read which page of the admin address, and under which host names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from interlingua.protocols.wire import CHALLENGE, Headers, HttpRequest
from interlingua.schemas import InferenceError
from interlingua.schemas.errors import HTTP_STATUS
from interlingua.translator.access.audit import recorded
from interlingua.translator.access.authorization import Authorization
from interlingua.translator.access.build import authenticator_of, authorization
from interlingua.translator.access.classes import OperationClass
from interlingua.translator.access.grants import LOCAL
from interlingua.translator.access.hosts import PermittedHosts
from interlingua.translator.config.admin import AdminOptions
from interlingua.translator.config.auth import AuthOptions

_HEALTH = "/health/"

Refusal = tuple[int, str, Headers]
"""The status, text and headers of a refusal."""


@dataclass(frozen=True, slots=True)
class AdminGate:
    """Permits pages by their class, ``health`` for probes and ``statistics`` for all others, and actions
    by theirs."""

    authorization: Authorization = field(default_factory=Authorization)
    hosts: PermittedHosts = field(default_factory=PermittedHosts)

    def refusal(self, request: HttpRequest) -> Refusal | None:
        """The status, text and headers of a refusal, if ``request`` is refused."""
        probe = request.path.startswith(_HEALTH)
        requested: OperationClass = "health" if probe else "statistics"
        # a probe answers under any name: balancers have their own, and it reveals nothing
        if not probe and (misdirected := self.misdirected(request)) is not None:
            return misdirected
        try:
            self.authorization.authenticate(request.context)
            if requested not in self.authorization.unrestricted:
                self.authorization.admit(requested, request.context)
        except InferenceError as error:
            return refused(error)
        return None

    def misdirected(self, request: HttpRequest) -> Refusal | None:
        """The refusal of a request for a host that is not served here."""
        if self.hosts.permit(request.headers.get("host", "")):
            return None
        text = "this address does not serve the host of the request; admin.hosts lists further ones"
        return 421, text, ()

    @contextmanager
    def recorded(self, request: HttpRequest, requested: OperationClass, action: str) -> Iterator[None]:
        """Admit the caller of ``action``, of the class ``requested``, and put it into the audit log. Raises
        FORBIDDEN, and what the block raises."""
        allowed = self.authorization
        with recorded(requested, action, "", allowed.listener, "admin", allowed.refusals) as entry:
            entry.caller = allowed.caller(request.context)
            allowed.authenticate(request.context)
            entry.caller = allowed.admit(requested, request.context)
            entry.admitted = True
            yield


def refused(error: InferenceError) -> Refusal:
    """The refusal of a request that is not permitted."""
    status = HTTP_STATUS[error.code]
    return status, error.message, CHALLENGE if status == 401 else ()


def gate_of(options: AdminOptions, auth: AuthOptions | None) -> AdminGate:
    """The gate of an address. Raises ``OSError`` and ``ValueError`` for unusable files."""
    # a listener may be where visitors of this address cannot connect
    allowed = authorization(options, authenticator_of(auth), {"inference": (LOCAL,)})
    return AdminGate(allowed, PermittedHosts(options.hosts))
