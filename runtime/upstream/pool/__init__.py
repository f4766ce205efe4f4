"""The servers of one upstream: which of them is asked, and when none is.

``member`` is one server and what is known of its health, ``pool`` chooses, ``homes`` remembers where
sequences live, ``probes`` asks the servers how they are, ``unanswered`` asks what not every server answers,
``names`` follows host names, ``gate`` bounds what is under way. What is asked, in which dialect, belongs to
``runtime.upstream.upstream``.
"""

from interlingua.runtime.upstream.pool.gate import Gate
from interlingua.runtime.upstream.pool.member import Member
from interlingua.runtime.upstream.pool.names import HostName, HostNames
from interlingua.runtime.upstream.pool.pool import Pool
from interlingua.runtime.upstream.pool.probes import Probes

__all__ = ["Gate", "HostName", "HostNames", "Member", "Pool", "Probes"]
