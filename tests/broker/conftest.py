"""Brokers that several test modules speak to."""

from __future__ import annotations

import pytest

import pymq
from tests.broker.sides import Side, heartbeat
from tests.broker.test_admin import SMALL, create_topic
from tests.broker.wire import Wire


class Disk:
    """A disk that is as full as the test says."""

    def __init__(self):
        self.ratio = 0.1

    def __call__(self, path):
        """How full."""
        return self.ratio


@pytest.fixture
def disk():
    """One with room, at first."""
    return Disk()


@pytest.fixture
def wire(broker):
    """A connection to the module's own broker."""
    with Wire(broker.config.listen_port) as connected:
        yield connected


@pytest.fixture(scope="module", params=["native", "python"])
def plane_broker(request, tmp_path_factory):
    """A broker on each plane."""
    config = pymq.BrokerConfig(
        listen_port=0,
        namesrv_listen_port=0,
        broker_name="a",
        data_plane=request.param,
        store_path_root_dir=str(tmp_path_factory.mktemp("store")),
        store=SMALL,
    )
    with pymq.Broker(config).running() as running:
        yield running


@pytest.fixture
def side(plane_broker, request):
    """A topic and a group of the test's own."""
    name = request.node.name.partition("[")[0][-60:]
    with Wire(plane_broker.config.listen_port) as wire:
        create_topic(wire, f"T_{name}")
        heartbeat(wire, f"G_{name}", f"T_{name}")
        yield Side(plane_broker, wire, f"G_{name}", f"T_{name}")
