"""The servers of one upstream, and the choice among them.

``member`` is one server and its health, ``pool`` chooses, ``homes`` remembers the servers of sequences,
``probes`` checks health, ``unanswered`` makes calls that not every server answers, ``names`` follows host
names, ``gate`` limits the requests in flight, ``spans`` records attempts.
"""

from interlingua.runtime.upstream.pool.gate import Gate
from interlingua.runtime.upstream.pool.member import Member
from interlingua.runtime.upstream.pool.names import HostName, HostNames
from interlingua.runtime.upstream.pool.pool import Attempt, Pool
from interlingua.runtime.upstream.pool.probes import Probes

__all__ = ["Attempt", "Gate", "HostName", "HostNames", "Member", "Pool", "Probes"]
