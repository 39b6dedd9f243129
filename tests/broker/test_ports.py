"""Ports held from before the store is opened until the server listens."""

from __future__ import annotations

import socket

import pytest

from pymq.broker.ports import bind_socket, hold_ports
from pymq.errors import ConfigError


def test_the_kernel_s_pair_is_two_apart_and_can_be_listened_on_while_held():
    """Goal: the server takes what was held. Method: listen on both while they are held, as the transport does."""
    held = hold_ports("127.0.0.1", 0)
    assert held.numbers[0] - held.numbers[1] == 2
    listeners = [bind_socket("127.0.0.1", number) for number in held.numbers]
    for listener in listeners:
        listener.listen(1)
    held.close()
    held.close()
    with socket.create_connection(("127.0.0.1", held.numbers[1])):
        pass
    for listener in listeners:
        listener.close()


@pytest.mark.parametrize("distance", [0, 2])
def test_either_port_in_use_is_refused_and_nothing_stays_bound(distance):
    """Goal: one clear line, and the other port free again. Method: a listener on each of the two in turn."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} .*in use"):
            hold_ports("127.0.0.1", port + distance)
    with socket.create_server(("127.0.0.1", port + distance)):
        pass


def test_an_address_that_is_not_ours_is_refused_by_name():
    """Goal: a wrong bindAddress. Method: an address of the documentation's network."""
    with pytest.raises(ConfigError, match="bindAddress"):
        hold_ports("192.0.2.1", 0)
