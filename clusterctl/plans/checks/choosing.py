"""Which checks are judged, and which findings do not count."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from clusterctl.errors import UsageError
from clusterctl.plans.checks.check import Check
from clusterctl.plans.checks.ssh import MEANINGS
from clusterctl.specs.nearest import nearest
from clusterctl.specs.nodeset import select_nodes
from clusterctl.specs.waiver import Waiver

# Beside nodes that gave no answer: with these findings no launch can work, whatever anybody says.
IMPOSSIBLE = frozenset(
    {"CC-TORCH-001", "CC-DISK-002", "CC-DISK-009", "CC-NET-001", "CC-NET-004", "CC-NET-005"}
)


@dataclass(frozen=True)
class Granted:
    """A waiver whose nodes are known."""

    code: str
    nodes: frozenset[str]
    told: str


@dataclass(frozen=True)
class Choice:
    """The codes that are left out, and the waivers; nodes that gave no answer are always told."""

    left_out: frozenset[str] = frozenset()
    waivers: tuple[Granted, ...] = ()

    def waiver_for(self, code: str, nodes: Collection[str]) -> str:
        """Give the reason for which a finding on some nodes does not count; empty if it does."""
        fitting = (one for one in self.waivers if one.code == code and one.nodes.issuperset(nodes))
        return next((one.told for one in fitting), "")


ALL_CHECKS = Choice()


def choose_checks(known: Mapping[str, Check], only: Sequence[str], skip: Sequence[str]) -> frozenset[str]:
    """Give the codes that are not to be judged; words are codes, families or globs, separated by commas.

    An unknown word is a UsageError that names the nearest. What says that a node gave no answer stays.
    """
    wanted = _meant(known, only) if only else frozenset(known)
    return frozenset(known) - (wanted - _meant(known, skip)) - MEANINGS.keys()


def _meant(known: Mapping[str, Check], words: Iterable[str]) -> frozenset[str]:
    parts = [part.strip() for word in words for part in word.split(",") if part.strip()]
    return frozenset(code for part in parts for code in _codes(known, part))


def _codes(known: Mapping[str, Check], word: str) -> list[str]:
    full = word.upper() if word.upper().startswith("CC-") else f"CC-{word.upper()}"
    found = [code for code in known if code == full or code.startswith(f"{full}-") or fnmatchcase(code, full)]
    if found:
        return found
    families = sorted({code.rpartition("-")[0] for code in known})
    guess = nearest(full, [*families, *known])
    meaning = f" ({known[guess].title})" if guess and guess in known else ""
    raise UsageError(
        f"no check is called {word!r}",
        code="CC-USE-050",
        fix=(f"did you mean {guess}{meaning}? " if guess else "")
        + f"Codes such as CC-NET-003, families ({', '.join(one[3:] for one in families)}) and globs can be chosen",
    )


def grant(known: Mapping[str, Check], waivers: Sequence[Waiver], names: Sequence[str]) -> tuple[Granted, ...]:
    """Find the nodes of waivers; `names` are the whole inventory's. UsageError for what cannot be waived."""
    return tuple(_granted(known, one, names) for one in waivers)


def _granted(known: Mapping[str, Check], waiver: Waiver, names: Sequence[str]) -> Granted:
    place = f"{waiver.file}: waive {waiver.code}"
    if waiver.code not in known:
        guess = nearest(waiver.code, known)
        hint = f"did you mean {guess} ({known[guess].title})?" if guess else "`clusterctl explain` lists all"
        raise UsageError(f"{place}: there is no such finding", code="CC-USE-050", fix=hint)
    if waiver.code in MEANINGS or waiver.code in IMPOSSIBLE:
        title = known[waiver.code].title
        raise UsageError(
            f"{place}: {title}: no launch could work, so this cannot be waived",
            code="CC-USE-051",
            fix="leave the node out with --exclude, and drop the waiver",
        )
    try:
        chosen = select_nodes(waiver.nodes, names)
    except UsageError as wrong:
        raise UsageError(f"{place}: {wrong.message}", code=wrong.code, fix=wrong.fix) from wrong
    return Granted(waiver.code, frozenset(names[at] for at in chosen), f"{waiver.reason} ({waiver.file})")
