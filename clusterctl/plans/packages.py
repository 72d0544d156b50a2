"""What differs between the installed packages of two nodes, in few words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from clusterctl.specs.counted import counted

MOST = 6  # packages named; the rest is counted

Versions = Mapping[str, str]


def read_packages(told: Sequence[str]) -> dict[str, str]:
    """Read `name version` as the probe tells them."""
    return {name: version for name, _, version in (line.partition(" ") for line in told)}


def without(packages: Versions, is_told: Callable[[str], bool]) -> dict[str, str]:
    """Leave out what other checks tell already."""
    return {name: version for name, version in packages.items() if not is_told(name)}


def describe_difference(odd: Versions, usual: Versions) -> str:
    """Say how a node's packages differ from the usual ones: `numpy 1.26.4 instead of 2.2.6, no tqdm, also foo 1`."""
    names = sorted(
        odd.keys() | usual.keys(), key=lambda name: (name in odd, name in odd and name in usual, name)
    )
    told = [
        _describe(name, odd.get(name), usual.get(name)) for name in names if odd.get(name) != usual.get(name)
    ]
    more = [f"{counted(len(told) - MOST, 'more difference')}"] if len(told) > MOST else []
    return ", ".join([*told[:MOST], *more])


def _describe(name: str, here: str | None, there: str | None) -> str:
    if here is None:
        return f"no {name} ({there})"
    return f"also {name} {here}" if there is None else f"{name} {here} instead of {there}"
