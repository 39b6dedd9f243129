"""Who can reach a broker that was told of name servers and of nothing else.

Alone, with a name server inside, it is a whole system for this machine and listens on loopback (`resolved()`). One that
joins other name servers is part of a cluster: it has to be reachable, so it listens on every address, and says so. But
NAMESRV_ADDR stays in many a shell; while it names this machine only, nobody asked for the network with it.
"""

from __future__ import annotations

import ipaddress

from pymq.broker.config import LOOPBACK
from pymq.broker.config_source import NAMESRV_VARIABLE, LoadedConfig

NAMESRV_KEY = "namesrvAddr"


def decide_reach(loaded: LoadedConfig) -> None:
    """Close a broker whose environment names this machine only; warn of one that its name servers alone open."""
    config = loaded.config
    if not config.namesrv_addr or config.bind_address or config.broker_ip1 or config.broker_config_path:
        return
    origin = loaded.origins.get(NAMESRV_KEY, "")
    if origin == f"environment {NAMESRV_VARIABLE}" and all_loopback(config.namesrv_addr):
        loaded.config = config.replace(bind_address=LOOPBACK)
        return
    loaded.warnings.append(
        f"{origin}: {NAMESRV_KEY}={config.namesrv_addr} makes this broker part of a cluster: it listens on ALL "
        f"addresses of this machine; set bindAddress to restrict it (bindAddress={LOOPBACK} for this machine alone)"
    )


def all_loopback(addresses: str) -> bool:
    """Whether every one of the name servers, host:port;host:port, is on this machine by its address."""
    hosts = [part.strip().rpartition(":")[0].strip("[]") for part in addresses.split(";") if part.strip()]
    return all(map(is_loopback, hosts))


def is_loopback(host: str) -> bool:
    """Whether *host* is an address of loopback, or localhost; other names are not asked for."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
