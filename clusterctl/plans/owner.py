"""Whose run it is: told apart by the launching machine's own id, and by `user@host` where there is none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Owner:
    """Somebody who launches: `name` is `user@host`, `id` random and kept in the user's state directory."""

    name: str
    id: str = ""

    def is_same(self, other: Owner) -> bool:
        """Tell whether both are one; two laptops may have the same user and host name, one may change its own."""
        if self.id and other.id:
            return self.id == other.id
        return self.name == other.name
