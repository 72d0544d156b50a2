"""The parts of a node's answer that are about the session: its share of the machine, and its text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cgroup:
    """The limits of the session's control groups; memory in bytes, `None` where there is no limit."""

    memory: int | None = None
    memory_free: int | None = None
    cpus: float | None = None
    pids_free: int | None = None


@dataclass(frozen=True)
class SharedMemory:
    """What processes that are gone have left in /dev/shm."""

    files: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Encoding:
    """How Python reads text there, and the variables that decide it."""

    encoding: str | None = None
    variables: tuple[str, ...] = ()
