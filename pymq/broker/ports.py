"""Which ports to listen on: the clients' and, two below it, the VIP port.

They are bound before the store is opened, so that a port in use is found out first, and stay bound (not listening)
until the server has bound them itself: meanwhile the kernel gives them to no client as its own port.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

from pymq.broker.config import VIP_PORT_DISTANCE
from pymq.errors import ConfigError

TRIES = 64


@dataclass(frozen=True, slots=True)
class HeldPorts:
    """The client port and the VIP port, kept for us until close()."""

    numbers: tuple[int, int]
    sockets: tuple[socket.socket, ...]

    def close(self) -> None:
        """Let go of them. Idempotent."""
        for held in self.sockets:
            held.close()


def hold_ports(host: str, port: int) -> HeldPorts:
    """Bind the pair; 0 lets the kernel choose it.

    Raises:
        ConfigError: one of them is taken or not allowed; says which and what to change.
    """
    if port:
        held: list[socket.socket] = []
        for number in (port, port - VIP_PORT_DISTANCE):
            try:
                held.append(bind_socket(host, number))
            except OSError as error:
                HeldPorts((port, number), tuple(held)).close()
                raise refusal(host, number, error) from error
        return HeldPorts((port, port - VIP_PORT_DISTANCE), tuple(held))
    for _ in range(TRIES):
        try:
            chosen = bind_socket(host, 0)
        except OSError as error:
            raise refusal(host, 0, error) from error
        number = int(chosen.getsockname()[1])
        try:
            return HeldPorts(
                (number, number - VIP_PORT_DISTANCE), (chosen, bind_socket(host, number - VIP_PORT_DISTANCE))
            )
        except OSError:
            chosen.close()
    raise ConfigError(f"no two free ports {VIP_PORT_DISTANCE} apart found on {host}; set listenPort")


def refusal(host: str, port: int, error: OSError) -> ConfigError:
    """Why a port cannot be had, in one line with a way out."""
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"port {port} on {host} is in use: another broker or program listens there; set listenPort (this broker "
            f"needs it and the one {VIP_PORT_DISTANCE} below)"
        )
    return ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; see bindAddress and listenPort")


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket bound to *host*:*port* as a listener binds; a second one may bind there too as long as none listens."""
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except OSError:
        found.close()
        raise
    return found
