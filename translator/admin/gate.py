"""Who may read which page of the admin address, and under which host names."""

from __future__ import annotations

from dataclasses import dataclass, field

from interlingua.protocols.wire import HttpRequest
from interlingua.schemas import InferenceError
from interlingua.translator.access.authorization import Authorization
from interlingua.translator.access.classes import OperationClass
from interlingua.translator.access.hosts import PermittedHosts

_HEALTH = "/health/"


@dataclass(frozen=True, slots=True)
class AdminGate:
    """Permits pages by their class: ``health`` for probes, ``statistics`` for all others."""

    authorization: Authorization = field(default_factory=Authorization)
    hosts: PermittedHosts = field(default_factory=PermittedHosts)

    def refusal(self, request: HttpRequest) -> tuple[int, str] | None:
        """The status and text of a refusal, if ``request`` is refused."""
        probe = request.path.startswith(_HEALTH)
        requested: OperationClass = "health" if probe else "statistics"
        # a probe answers under any name: balancers have their own, and it reveals nothing
        if not probe and not self.hosts.permit(request.headers.get("host", "")):
            return 421, "this address does not serve the host of the request; admin.hosts lists further ones"
        if requested in self.authorization.unrestricted:
            return None
        try:
            self.authorization.admit(requested, request.context)
        except InferenceError as error:
            return 403, error.message
        return None
