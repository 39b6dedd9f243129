"""Which ports to listen on: the clients' and, two below it, the VIP port."""

from __future__ import annotations

import errno
import socket

from pymq.broker.config import VIP_PORT_DISTANCE
from pymq.errors import ConfigError

TRIES = 64


def choose_ports(host: str, port: int) -> tuple[int, int]:
    """The client port and the VIP port, free a moment ago; 0 lets the kernel choose the pair.

    Raises:
        ConfigError: one of them is taken or not allowed; says which and what to change.
    """
    if port:
        for number in (port, port - VIP_PORT_DISTANCE):
            probe_port(host, number)
        return port, port - VIP_PORT_DISTANCE
    for _ in range(TRIES):
        with bind_socket(host, 0) as chosen:
            number = int(chosen.getsockname()[1])
            try:
                with bind_socket(host, number - VIP_PORT_DISTANCE):
                    return number, number - VIP_PORT_DISTANCE
            except OSError:
                continue
    raise ConfigError(f"no two free ports {VIP_PORT_DISTANCE} apart found on {host}; set listenPort")


def probe_port(host: str, port: int) -> None:
    """Find out now, before the store is opened, whether *port* can be listened on.

    Raises:
        ConfigError: it cannot.
    """
    try:
        bind_socket(host, port).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} on {host} is in use: another broker or program listens there; set listenPort (this "
                f"broker needs it and the one {VIP_PORT_DISTANCE} below)"
            ) from error
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}; see bindAddress and listenPort"
        ) from error


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket bound to *host*:*port* the way a listener binds."""
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(1)
    except OSError:
        found.close()
        raise
    return found
