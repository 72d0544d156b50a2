"""Proofs of knowing a secret, for one purpose and one occasion."""

from __future__ import annotations

import hmac
import json
from hashlib import sha256
from typing import Any


def prove(token: bytes, *words: object) -> str:
    """Prove to know the token; the words are the purpose and the occasion."""
    return hmac.new(token, json.dumps(words).encode("utf-8"), sha256).hexdigest()


def same(one: Any, other: str) -> bool:
    """Compare a proof that was heard with the right one, in a time that tells nothing."""
    return isinstance(one, str) and hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8"))
