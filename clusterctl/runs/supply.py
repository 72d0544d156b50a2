"""What the nodes need for a job's `setup`: its files, the word to begin, and an ear for how it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fabric import Connection

from clusterctl.errors import StartError
from clusterctl.plans.redact import redact
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.runs import tasks
from clusterctl.runs.passing import Passing
from clusterctl.runs.session import Session
from clusterctl.runs.source import ScanResult
from clusterctl.specs.inventory import Node
from clusterctl.specs.nodeset import fold_names

SHOWN = 60  # characters of what a step says that are shown while it runs


@dataclass(frozen=True)
class Supply:
    """The files of a setup, how long it may take, and by node whether it was to be made."""

    scan: ScanResult
    time_limit: float
    passing: Passing | None = None
    made: dict[str, bool] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)  # bytes, by node

    def send(
        self,
        c: Connection,
        node: Node,
        interpreter: tasks.Interpreter,
        seat: int,
        leash: Session,
        progress: Callable[[int], None],
    ) -> None:
        """Bring a node the files that it lacks, and have it begin."""

        def move(count: int) -> None:
            self.sent[node.name] = self.sent.get(node.name, 0) + count
            progress(count)

        tasks.sync(c, node, interpreter, None, seat, self.scan, move, passing=self.passing)
        leash.send({"do": "setup"})


def needs_setup(seen: Mapping[str, Untrusted]) -> bool:
    """Tell whether a node whose agent is up has to make the environment."""
    return "setup" in seen and not seen["setup"].flag("made")


def describe_step(text: str, secrets: Mapping[str, str]) -> str:
    """Say in a few words what a setup is at."""
    line = " ".join(redact(text, secrets.values()).split())
    return f"{line if len(line) <= SHOWN else line[: SHOWN - 3] + '...'}"


def refuse_mixed(torches: Mapping[str, str]) -> None:
    """Refuse environments that were made with different versions of torch; raises StartError."""
    found: dict[str, list[str]] = {}
    for name, version in torches.items():
        found.setdefault(version, []).append(name)
    if len(found) > 1:
        told = "\n".join(f"{fold_names(names)}: torch {version}" for version, names in sorted(found.items()))
        raise StartError(
            "the environments that `setup` made hold different versions of torch",
            code="CC-SETUP-006",
            evidence=told,
            fix="pin torch in the lock file, or give the nodes the same one",
        )
