"""The two grammars in which NICs are named: Gloo's knows exact names only, NCCL's has prefixes, `=` and `^`."""

from __future__ import annotations

from collections.abc import Collection

GLOO_READS = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
NCCL_READS = ("NCCL_SOCKET_IFNAME",)


def match_gloo(value: str, names: Collection[str]) -> tuple[str, ...]:
    """Name the words of a list of exact names that no NIC bears; every one must."""
    return tuple(word for word in value.split(",") if word not in names)


def match_nccl(value: str, names: Collection[str]) -> tuple[str, ...]:
    """Give the NICs that NCCL would take: `eth` is a prefix, `=eth0` exact, `^` turns the whole list round."""
    without = value.startswith("^")
    words = value[without:]
    exact = words.startswith("=")
    wanted = [word.partition(":")[0] for word in words[exact:].split(",") if word]
    return tuple(
        name
        for name in names
        if without != any(name == word if exact else name.startswith(word) for word in wanted)
    )
