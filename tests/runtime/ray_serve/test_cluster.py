"""The threads that call the driver, and what is known of an address before Ray is imported."""

from __future__ import annotations

import socket
import threading

import pytest

from interlingua.runtime.model_config.config import LoadError
from interlingua.runtime.ray_serve.cluster import Cluster
from interlingua.runtime.ray_serve.options import ClusterOptions


def test_a_call_that_does_not_return_keeps_nothing_from_the_next_ones() -> None:
    cluster = Cluster(ClusterOptions(load_timeout_secs=0.05))
    hang = threading.Event()
    try:
        with pytest.raises(TimeoutError):
            cluster.call(hang.wait)
        assert cluster.call(lambda: "answered", 20) == "answered"
    finally:
        hang.set()


def test_a_call_that_times_out_itself_keeps_its_thread() -> None:
    cluster = Cluster(ClusterOptions())
    thread = cluster.call(threading.current_thread)

    def fail() -> None:
        raise TimeoutError("of Ray")

    with pytest.raises(TimeoutError, match="of Ray"):
        cluster.call(fail)
    assert cluster.call(threading.current_thread) is thread


def test_an_address_at_which_nothing_listens_is_refused_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    cluster = Cluster(ClusterOptions(address))
    with pytest.raises(LoadError, match=f"the Ray cluster at {address} is not reachable: .*refused"):
        cluster.connect()
    assert "refused" in cluster.reason


def test_an_address_needs_a_port() -> None:
    with pytest.raises(LoadError, match="'localhost' has no port"):
        Cluster(ClusterOptions("localhost")).connect()
