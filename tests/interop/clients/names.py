"""What tests call things, and how many queues their topics have."""

from __future__ import annotations

QUEUE_COUNT = 8


class Names:
    """Names for topics, groups and clients that no other test uses; `given` is all of them."""

    def __init__(self) -> None:
        self.given: set[str] = set()

    def __call__(self, prefix: str) -> str:
        """The next name, which begins with *prefix*."""
        name = f"{prefix}-{len(self.given) + 1}"
        self.given.add(name)
        return name
