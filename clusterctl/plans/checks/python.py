"""Interpreter, activate, packages, environment of setup."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from clusterctl.plans.checks.framework import (
    Hit,
    Situation,
    across,
    ask_first,
    check,
    in_inventory,
    on,
    split_votes,
    ssh_to,
)
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import counted

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


COMPLAINT = re.compile(
    r"error|not found|no such|cannot|can't|unable|fail|denied|not exist|unknown", re.IGNORECASE
)
OLDEST_GLIBC, SINCE_TORCH = (2, 28), (2, 6)


@check(
    "CC-PY-010",
    "error",
    "the Python versions differ",
    why="Object collectives pickle across nodes, and compiled packages differ between Python versions.",
    needs=("interpreter",),
)
def python_differs(seen: Situation) -> Iterator[Hit]:
    """All nodes must run the same X.Y of Python.

    torch wheels, compiled extensions and pickles belong to one X.Y. A difference in the third number is
    harmless. Name the interpreter of each node by `python:`, per node if need be.
    """
    versions = {
        node.name: ".".join(facts.interpreter.version.split(".")[:2])
        for node, facts in seen.known
        if facts.interpreter.version
    }
    split = split_votes(versions)
    if split:
        wanted = f"python{split.majority}" if split.majority else "pythonX.Y"
        odd = next(node for node in seen.nodes if node.name in split.odd)
        paths = [facts.interpreter.executable for node, facts in seen.known if node.name == odd.name]
        fix = in_inventory(odd, f"python: /path/to/{wanted}  # now {paths[0]}")
        yield across(split.odd, split.evidence, fix)


@check(
    "CC-PY-011",
    "warning",
    "`activate` failed",
    why="What it was to set up may be missing: Python was started all the same.",
    needs=("activate",),
)
def activate_failed(seen: Situation) -> Iterator[Hit]:
    """The shell line `activate:` of the inventory or the job ended with another status than 0.

    A file that it sources is not there, a module or an environment has another name on this node. The status is
    that of its last command, so a harmless one at the end counts too: end the line with `|| true` if it is meant.
    """
    for node, facts in seen.known:
        status = facts.activate.status
        if status:
            line = (seen.job.activate if seen.job else None) or node.activate
            told = f": {facts.activate.said}" if facts.activate.said else ""
            yield on(node, f"activate ended with status {status}{told}", ssh_to(node, line) if line else "")


@check(
    "CC-PY-012",
    "warning",
    "Python is outside the activated environment",
    why="The job would run with the packages of another Python than the one that `activate` prepares.",
    needs=("interpreter", "activate"),
)
def python_is_outside(seen: Situation) -> Iterator[Hit]:
    """`activate` switches to a conda environment or venv, and `python:` names an interpreter that is not of it.

    A bare name is looked up on PATH after `activate`, so `python: python` takes the environment's own. An absolute
    path is taken as it is: name the one in the environment, or leave `activate` out. `python3` may be another one
    than `python` where an environment has only the latter.
    """
    for node, facts in seen.known:
        environment = facts.activate.environment
        if facts.activate.inside is False and environment:
            evidence = f"{environment} is active, Python is {facts.interpreter.executable}"
            yield on(node, evidence, in_inventory(node, f"python: {environment}/bin/python"))


@check(
    "CC-PY-013",
    "warning",
    "`activate` gives different things",
    why="What is built or loaded on one node with another compiler or CUDA may fail or compute differently there.",
    needs=("activate",),
)
def activate_differs(seen: Situation) -> Iterator[Hit]:
    """After `activate` the nodes differ in the name of the active environment, the CUDA toolkit or the compiler.

    The toolkit is that of the nvcc on PATH, or of CUDA_HOME; the compiler is cc, gcc or clang, whichever comes first
    in this order. torch's own CUDA is compared elsewhere; these two matter for extensions and torch.compile.
    """
    active = {node.name: facts.activate for node, facts in seen.known if facts.activate.status is not None}
    aspects = {
        "environment": {name: _name_of(given.environment) for name, given in active.items()},
        "CUDA toolkit": {name: given.cuda or "none" for name, given in active.items()},
        "compiler": {name: given.compiler_version or "none" for name, given in active.items()},
    }
    for aspect, values in aspects.items():
        split = split_votes(values)
        if split:
            fix = "make `activate` name one environment, toolkit and compiler, with versions, for all nodes"
            yield across(split.odd, f"{aspect}: {split.evidence}", fix)


def _name_of(environment: str | None) -> str:
    return environment.rstrip("/").rpartition("/")[2] if environment else "none"


@check(
    "CC-PY-014",
    "warning",
    "`activate` complains",
    why="It ended well and yet said that something went wrong: what it was to set up may be missing.",
    needs=("activate",),
)
def activate_complains(seen: Situation) -> Iterator[Hit]:
    """The session wrote an error message before Python started, and the status of `activate` is 0 all the same.

    Older versions of `module` end with 0 when a module does not exist. And the text goes on after a command that
    failed in its middle: join its commands by `&&`.
    """
    for node, facts in seen.known:
        said = facts.activate.said or ""
        if facts.activate.status == 0 and COMPLAINT.search(said):
            yield on(
                node,
                said,
                in_inventory(node, "activate: join the commands by &&, and mend the one that fails"),
            )


@check(
    "CC-PY-015",
    "warning",
    "the installed packages differ",
    why="One node then fails with an ImportError that the others lack, or computes something slightly different.",
    needs=("installed",),
)
def packages_differ(seen: Situation) -> Iterator[Hit]:
    """The interpreters of the nodes do not find the same packages in the same versions.

    Names and versions of all that pip or the distribution installed for this Python are compared, and the odd
    node's differences named; `check --json` has every node's list. torch and what comes with it is compared by
    checks of its own. Make the environments from one lock file.
    """
    if len({facts.installed.digest for _, facts in seen.known}) < 2:
        return
    torches = {facts.torch.version for _, facts in seen.known}
    found = {
        node.name: without(
            read_packages(facts.installed.packages), lambda name: _is_told(name, len(torches) > 1)
        )
        for node, facts in seen.known
        if facts.installed.digest
    }
    split = split_votes({name: str(sorted(packages.items())) for name, packages in found.items()})
    if split:
        usual = next(name for name in found if split.majority is None or name not in split.odd)
        odd = [name for name in found if name in split.odd and found[name] != found[usual]]
        command = f"{shlex.quote(seen.facts[usual].interpreter.executable or 'python3')} -m pip freeze"
        fix = f"{ask_first(seen.nodes, (usual,), command)} > lock.txt, and install that on the others"
        evidence = _differences(found, odd, usual, named=split.majority is None)
        yield across(split.odd, evidence, fix)


def _is_told(name: str, torch_differs: bool) -> bool:
    """Tell whether the checks of torch speak of a package."""
    if name in {"torch", "pip"} or name.startswith(("nvidia-nccl", "nvidia-cudnn")):
        return True
    return torch_differs and (name.startswith("nvidia-") or "triton" in name)


def _differences(found: Mapping[str, Mapping[str, str]], odd: list[str], usual: str, *, named: bool) -> str:
    alike: dict[str, list[str]] = {}
    for name in odd:
        alike.setdefault(describe_difference(found[name], found[usual]), []).append(name)
    told = "; ".join(f"{fold_names(names)}: {text}" for text, names in alike.items())
    return f"{told}; compared with {usual}" if named else told


@check(
    "CC-PY-016",
    "warning",
    "the C libraries differ",
    why="Compiled packages that work on one node may not load on another.",
    needs=("platform",),
)
def libc_differs(seen: Situation) -> Iterator[Hit]:
    """The nodes have different versions of glibc, as different distributions or releases of one bring them.

    Wheels that were built for the older one work on all; what you compile on the newer one fails on the older with
    "version `GLIBC_2.xx' not found". Build on the node with the oldest.
    """
    split = split_votes({node.name: facts.platform.libc for node, facts in seen.known if facts.platform.libc})
    if split:
        fix = "build extensions on the node with the oldest glibc; wheels from an index need nothing"
        yield across(split.odd, split.evidence, fix)


@check(
    "CC-PY-017",
    "warning",
    "the C library is old for this torch",
    why="Wheels of torch since 2.6 need glibc 2.28: importing one fails, or the torch there is a build of its own.",
    needs=("platform", "torch"),
)
def libc_is_old(seen: Situation) -> Iterator[Hit]:
    """PyTorch's own wheels have been manylinux_2_28 since 2.6; older systems, such as CentOS 7, cannot load them.

    The import ends with "version `GLIBC_2.28' not found". Use conda-forge's build, a container, or a newer system.
    """
    for node, facts in seen.known:
        libc, torch = _numbers(facts.platform.libc), _numbers(facts.torch.version)
        if libc and torch and libc < OLDEST_GLIBC and torch >= SINCE_TORCH:
            fix = "conda install -c conda-forge pytorch, or a torch before 2.6, or a newer system"
            yield on(node, f"{facts.platform.libc}, torch {facts.torch.version}", fix)


def _numbers(text: str | None) -> tuple[int, int] | None:
    found = re.search(r"(\d+)\.(\d+)", text or "")
    return (int(found.group(1)), int(found.group(2))) if found else None


NOT_MADE = "CC-SETUP-010"


@check(
    NOT_MADE,
    "info",
    "`setup` has not made its environment yet",
    why="Which torch and which packages the job will have is known when the first launch has made it.",
    needs=("setup",),
)
def environment_is_not_made(seen: Situation) -> Iterator[Hit]:
    """The job has a `setup`, and this node has no environment of that content: the launch will make it.

    Until then nothing is said of torch, NCCL and packages: those of the node's own Python do not count. When it is
    there, `check` looks into it. A lock file that has changed means an environment that is not there yet.
    """
    for node, facts in seen.known:
        if facts.setup.pending:
            yield on(
                node, "torch and packages are not judged before it is there", "clusterctl launch makes it"
            )
