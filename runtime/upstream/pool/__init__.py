"""The servers of one upstream, and the choice among them.

``member`` is one server and its health, ``pool`` chooses, by ``weighted`` if they differ, ``homes``
remembers the servers of sequences, ``probes`` checks health, ``unanswered`` makes calls that not every server
answers, ``discovery`` follows host ``names`` and the ``listing`` of servers in a file, ``gate`` limits the
requests in flight, ``spans`` records attempts.
"""

from interlingua.runtime.upstream.pool.discovery import Discovery
from interlingua.runtime.upstream.pool.gate import Gate
from interlingua.runtime.upstream.pool.listing import Listing, members_at
from interlingua.runtime.upstream.pool.member import Member
from interlingua.runtime.upstream.pool.names import HostName
from interlingua.runtime.upstream.pool.pool import Attempt, Pool
from interlingua.runtime.upstream.pool.probes import Probes
from interlingua.runtime.upstream.pool.weighted import Weighted

__all__ = [
    "Attempt",
    "Discovery",
    "Gate",
    "HostName",
    "Listing",
    "Member",
    "Pool",
    "Probes",
    "Weighted",
    "members_at",
]
