"""The body of a batch: message after message, as a client packs them."""

from __future__ import annotations

import struct
from collections.abc import Iterable


def encode_batch(items: Iterable[tuple[bytes, str]]) -> bytes:
    """Each item is (body, properties); sizes, magic and CRC are what clients put there: 0 where nobody reads them."""
    parts = []
    for body, properties in items:
        encoded = properties.encode()
        size = 4 + 4 + 4 + 4 + 4 + len(body) + 2 + len(encoded)
        parts.append(struct.pack(">IIIII", size, 0, 0, 0, len(body)) + body + struct.pack(">H", len(encoded)) + encoded)
    return b"".join(parts)
