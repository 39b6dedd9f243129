"""Which store is compared with which, and what the two are to each other. No Spark in here.

Who goes with whom: all stores with the one `--against`, if there is only one. Several go by name where both sides have
the same names, and by position where there are as many of each. A store that would be compared with nothing, or an
`--against` nothing is compared with, is an error.

What they are: an earlier dump of the same broker promises more than a replica, which may be ahead or behind, and whose
metadata comes when it comes. The operator's word (`--relation`) decides; without it the manifests do, as far as they
go. "Earlier" is said only of what is proved to be the same store and was dumped before: A24 would call a healthy slave
a log that has lost its end. Nothing is guessed: where the manifests do not tell, the pair is "unclear", and checks that
only mean something for an earlier dump do not run.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pymq.errors import PymqError
from spark_jobs.rocketmq_store.files import names, plain_path, read_manifest

EARLIER: Final = "earlier"
REPLICA: Final = "replica"
UNCLEAR: Final = "unclear"
AUTO: Final = "auto"

# What an earlier dump of the same broker is to a check.
ALONE: Final = "alone"  # all that it compares with: it needs one
ALSO: Final = "also"  # without one a part of it is not proved

NO_NAMES: Final = frozenset({"", "localhost", "localhost.localdomain"})  # of machines: any may be called so

Manifest = Mapping[str, Any]


class PairingError(PymqError):
    """It cannot be told which store is to be compared with which, or as what."""


class Pair(NamedTuple):
    """A store and what it is compared with, by their names in their tables; *why* is for people."""

    store: str
    other: str
    relation: str
    why: str = ""

    @property
    def words(self) -> str:
        """In one line."""
        what = {EARLIER: "an earlier dump", REPLICA: "a replica", UNCLEAR: "unclear what it is"}[self.relation]
        return f"{self.store} against {self.other}: {what}" + (f" ({self.why})" if self.why else "")


def pair_up(stores: Sequence[str], others: Sequence[str], said: str = AUTO) -> list[Pair]:
    """The pairs of the stores at some paths and those they are compared with; none without these.

    Raises:
        PairingError: somebody has no partner, or *said* is no relation.
        BadManifestError: a manifest that is none.
    """
    if said not in (EARLIER, REPLICA, AUTO):
        raise PairingError(f"relation {said!r}: it is one of {EARLIER}, {REPLICA}, {AUTO}")
    if not others:
        return []
    own, theirs = names(stores), names(others)
    couples = matched(own, theirs)
    if said != AUTO:
        return [Pair(name, other, said, "as --relation says") for name, other in couples]
    manifests = {name: read_manifest(plain_path(path)) for name, path in zip(own, stores, strict=True)}
    other_manifests = {name: read_manifest(plain_path(path)) for name, path in zip(theirs, others, strict=True)}
    return [Pair(name, other, *relation(manifests[name], other_manifests[other])) for name, other in couples]


def matched(own: Sequence[str], theirs: Sequence[str]) -> list[tuple[str, str]]:
    """Names that go together.

    Raises:
        PairingError: one would be left over, or neither names nor positions make pairs.
    """
    if len(theirs) == 1:
        return [(name, theirs[0]) for name in own]
    if set(own) == set(theirs):
        return [(name, name) for name in own]
    if len(own) != len(theirs):
        alone = sorted({*own} ^ {*theirs})
        raise PairingError(
            f"{len(own)} {'store' if len(own) == 1 else 'stores'} against {len(theirs)}: {', '.join(alone)} would be "
            "compared with nothing; give as many of each, or one --against for all"
        )
    couples = list(zip(own, theirs, strict=True))
    for name, other in couples:
        if name != other and (name in theirs or other in own):
            raise PairingError(
                f"by position {name} goes with {other}, and by name it does not; give stores and --against in one order"
            )
    return couples


def relation(own: Manifest | None, other: Manifest | None) -> tuple[str, str]:
    """What the manifests (None: a plain directory) say that *other* is, and why."""
    if own is None or other is None:
        return UNCLEAR, "a plain directory does not say whose it is"
    mine, theirs = broker_of(own), broker_of(other)
    if mine and theirs:
        if (mine["cluster"], mine["name"]) != (theirs["cluster"], theirs["name"]):
            return UNCLEAR, f"dumps of the brokers {mine['name']} and {theirs['name']}"
        if mine["id"] and theirs["id"] and mine["id"] != theirs["id"]:
            return REPLICA, f"the broker {mine['name']} with brokerId {mine['id']} and {theirs['id']}"
    path, other_path = (str(one.get("storePath") or "") for one in (own, other))
    host, other_host = (machine_of(one) for one in (own, other))
    if path and path == other_path and host and host == other_host:
        return in_time(own, other, f"both of {path} on {host}")
    if mine and theirs and mine["address"] == theirs["address"] and is_one_place(mine["address"]):
        return in_time(own, other, f"both of the broker {mine['name']} at {mine['address']}")
    if path != other_path:
        return UNCLEAR, f"dumps of {path or 'somewhere'} and {other_path or 'somewhere'}"
    if host and other_host:
        return UNCLEAR, f"dumps of {path or 'something'} on {host} and on {other_host}"
    return UNCLEAR, f"both of {path or 'something'}, but a manifest does not say on which machine"


def in_time(own: Manifest, other: Manifest, why: str) -> tuple[str, str]:
    """Two dumps of one store: whether *other* is the earlier one."""
    begun, other_begun = (one.get("begunMs") for one in (own, other))
    if not isinstance(begun, int) or not isinstance(other_begun, int):
        return UNCLEAR, f"{why}, but a manifest does not say when"
    if other_begun > begun:
        return UNCLEAR, f"{why}, but --against is the later one"
    return EARLIER, why


def broker_of(manifest: Manifest) -> dict[str, str]:
    """Name, cluster, id and address of the broker that was running; empty for a stopped store."""
    broker, configuration = manifest.get("broker"), manifest.get("configuration")
    if not isinstance(broker, dict) or not broker.get("name"):
        return {}
    number = configuration.get("brokerId") if isinstance(configuration, dict) else None
    found = {name: broker.get(name) for name in ("name", "cluster", "address")} | {"id": number}
    return {name: "" if value is None else str(value) for name, value in found.items()}


def machine_of(manifest: Manifest) -> str:
    """The machine a dump was taken on; empty when it is not said, or when it has a name that many have."""
    host = str(manifest.get("host") or "")
    return "" if host.lower() in NO_NAMES else host


def is_one_place(address: str) -> bool:
    """Whether host:port means the same broker from everywhere."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() not in NO_NAMES
    return not (number.is_loopback or number.is_unspecified)


def doubt(pairs: Iterable[Pair]) -> str:
    """What is not known about *pairs*, and what to do, as one sentence; empty when all is."""
    unclear = [pair for pair in pairs if pair.relation == UNCLEAR]
    if not unclear:
        return ""
    more = f", and of {len(unclear) - 1} more" if len(unclear) > 1 else ""
    first = unclear[0]
    return (
        f"the manifests do not tell whether {first.other} is an earlier dump of {first.store}{more} ({first.why}); say "
        f"--relation {EARLIER} or --relation {REPLICA}"
    )
