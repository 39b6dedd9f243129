"""The checkpoint file: one page, six longs at its beginning."""

from __future__ import annotations

import struct
from typing import NamedTuple

CHECKPOINT_SIZE = 4096
CHECKPOINT = struct.Struct(
    ">"
    "q"  # physicMsgTimestamp: store time of the last flushed record
    "q"  # logicsMsgTimestamp: store time of the last record in flushed queues
    "q"  # indexMsgTimestamp: end time of the last full, flushed index file
    "q"  # masterFlushedOffset
    "q"  # confirmPhyOffset
    "q"  # logicsPhysicalOffset: log offset up to which the queues are flushed
)


class Checkpoint(NamedTuple):
    """The six values, in file order."""

    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int
    master_flushed_offset: int
    confirm_phy_offset: int
    logics_physical_offset: int


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The whole page."""
    return CHECKPOINT.pack(*checkpoint).ljust(CHECKPOINT_SIZE, b"\x00")


def decode_checkpoint(source: bytes) -> Checkpoint:
    """The six values. Raises ValueError when the page is short."""
    if len(source) < CHECKPOINT_SIZE:
        raise ValueError(f"a checkpoint has {CHECKPOINT_SIZE} bytes, not {len(source)}")
    return Checkpoint(*CHECKPOINT.unpack_from(source))
