"""RocketMQ's Bloom filter data of a consumer's filter: which bits a message that it wants would set.

pymq sets and asks no bits: its evaluator looks at the record itself (docs/architecture.md has the figures). The
positions are kept for Apache's broker, which throws a whole consumerFilter.json away when some are missing or of
another size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

ERROR_RATE_DEFAULT: Final = 20  # maxErrorRateOfBloomFilter, percent
CONSUMERS_DEFAULT: Final = 32  # expectConsumerNumUseFilter
MASK: Final = 2**64 - 1
C1: Final = 0x87C37B91114253D5
C2: Final = 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class BloomData:
    """BloomFilterData: the bits of one (group, topic), and how many bits there are."""

    bit_num: int
    bit_pos: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """As RocketMQ writes it."""
        return {"bitNum": self.bit_num, "bitPos": list(self.bit_pos)}


class BloomShape:
    """Hash count k and bit count m, from an error rate in percent and a number of consumers."""

    def __init__(self, error_rate: int = ERROR_RATE_DEFAULT, consumers: int = CONSUMERS_DEFAULT) -> None:
        """As BloomFilter.createByFn computes them."""
        rate = error_rate / 100
        self.hash_count = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(consumers * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        self.bit_count = 8 * math.ceil(bits / 8)

    def data(self, group: str, topic: str) -> BloomData:
        """The bits of a group's filter on a topic."""
        hashed = murmur3_128_low(f"{group}#{topic}".encode())
        first, second = signed(hashed & 0xFFFFFFFF), signed(hashed >> 32)
        positions = []
        for number in range(1, self.hash_count + 1):
            combined = signed((first + number * second) & 0xFFFFFFFF)
            positions.append((combined if combined >= 0 else ~combined) % self.bit_count)
        return BloomData(self.bit_count, tuple(positions))

    def fits(self, data: BloomData | None) -> bool:
        """Whether *data* is of this shape."""
        return data is not None and data.bit_num == self.bit_count and len(data.bit_pos) == self.hash_count


def signed(value: int) -> int:
    """32 bits as Java's int."""
    return value - 2**32 if value >= 2**31 else value


def rotate(value: int, count: int) -> int:
    """64 bits to the left."""
    return (value << count | value >> (64 - count)) & MASK


def mix(value: int) -> int:
    """MurmurHash3's finalizer."""
    value = ((value ^ value >> 33) * 0xFF51AFD7ED558CCD) & MASK
    value = ((value ^ value >> 33) * 0xC4CEB9FE1A85EC53) & MASK
    return value ^ value >> 33


def murmur3_128_low(source: bytes) -> int:
    """The first eight bytes of MurmurHash3 x64 128 with seed 0, little-endian: Guava's HashCode.asLong()."""
    h1 = h2 = 0
    whole = len(source) // 16 * 16
    for at in range(0, whole, 16):
        k1 = int.from_bytes(source[at : at + 8], "little")
        k2 = int.from_bytes(source[at + 8 : at + 16], "little")
        h1 ^= rotate(k1 * C1 & MASK, 31) * C2 & MASK
        h1 = (((rotate(h1, 27) + h2) & MASK) * 5 + 0x52DCE729) & MASK
        h2 ^= rotate(k2 * C2 & MASK, 33) * C1 & MASK
        h2 = (((rotate(h2, 31) + h1) & MASK) * 5 + 0x38495AB5) & MASK
    tail = source[whole:]
    if len(tail) > 8:
        h2 ^= rotate(int.from_bytes(tail[8:], "little") * C2 & MASK, 33) * C1 & MASK
    if tail:
        h1 ^= rotate(int.from_bytes(tail[:8], "little") * C1 & MASK, 31) * C2 & MASK
    h1 ^= len(source)
    h2 ^= len(source)
    h1 = (h1 + h2) & MASK
    h2 = (h2 + h1) & MASK
    return (mix(h1) + mix(h2)) & MASK
