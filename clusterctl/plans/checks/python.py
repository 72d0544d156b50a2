"""Interpreter, activate, packages, the environment of `setup`, and what launchers need: Ray, Open MPI."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from clusterctl.plans.checks.framework import (
    CheckContext,
    Hit,
    Split,
    across_nodes,
    as_root,
    check,
    compare_nodes,
    join_items,
    join_parts,
    of_nodes,
    on_node,
    parse_version,
    pip_install,
    run_on_each,
    run_on_nodes,
    split_votes,
)
from clusterctl.plans.launch.launchers import RAY_PORTS
from clusterctl.protocol.messages.facts import Facts
from clusterctl.specs.nodeset import group_values
from clusterctl.specs.text import quote_word
from clusterctl.translation import tr, trn

MAX_SHOWN = 6  # packages named; the rest is counted

Versions = Mapping[str, str]
ERROR_WORDS = re.compile(
    r"error|not found|no such|cannot|can't|unable|fail|denied|not exist|unknown", re.IGNORECASE
)
OLDEST_GLIBC, SINCE_TORCH = (2, 28), (2, 6)
NOT_BUILT = "CC-SETUP-010"


def parse_packages(lines: Sequence[str]) -> dict[str, str]:
    """Read `name version` as the probe reports them."""
    return {name: version for name, _, version in (line.partition(" ") for line in lines)}


def exclude_packages(packages: Versions, is_excluded: Callable[[str], bool]) -> dict[str, str]:
    """Leave out what other checks report already."""
    return {name: version for name, version in packages.items() if not is_excluded(name)}


def describe_difference(odd: Versions, usual: Versions) -> str:
    """Return how a node's packages differ from the usual ones: `numpy 1.26.4 instead of 2.2.6, no tqdm, also foo 1`."""
    names = sorted(
        odd.keys() | usual.keys(), key=lambda name: (name in odd, name in odd and name in usual, name)
    )
    differences = [
        _describe_package(name, odd.get(name), usual.get(name))
        for name in names
        if odd.get(name) != usual.get(name)
    ]
    hidden = len(differences) - MAX_SHOWN
    more = [trn("{n} more difference", "{n} more differences", hidden)] if hidden > 0 else []
    return join_items([*differences[:MAX_SHOWN], *more])


def _describe_package(name: str, version: str | None, usual_version: str | None) -> str:
    if version is None:
        return tr("no {package} ({version})", package=name, version=usual_version)
    if usual_version is None:
        return tr("also {package} {version}", package=name, version=version)
    return tr("{package} {version} instead of {usual}", package=name, version=version, usual=usual_version)


@check("CC-PY-010", needs=("interpreter",))
def python_differs(context: CheckContext) -> Iterator[Hit]:
    split = compare_nodes(context, lambda facts: ".".join((facts.interpreter.version or "").split(".")[:2]))
    if split:
        odd = next(node for node in context.nodes if node.name in split.odd)
        paths = [facts.interpreter.executable for node, facts in context.known if node.name == odd.name]
        yield across_nodes(
            split.odd,
            split.evidence,
            python=f"python{split.majority}" if split.majority else "pythonX.Y",
            path=paths[0],
        )


@check("CC-PY-011", needs=("activate",))
def activate_failed(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        status = facts.activate.status
        if status:
            line = (context.job.activate if context.job else None) or node.activate
            evidence = tr("activate ended with status {status}", status=status)
            if facts.activate.said:
                evidence = tr("{subject}: {text}", subject=evidence, text=facts.activate.said)
            yield on_node(node, evidence, "" if line else None, line=quote_word(line or ""))


@check("CC-PY-012", needs=("interpreter", "activate"))
def python_is_outside(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        environment = facts.activate.environment
        if facts.activate.inside is False and environment:
            evidence = tr(
                "{environment} is active, Python is {python}",
                environment=environment,
                python=facts.interpreter.executable,
            )
            yield on_node(node, evidence, environment=environment)


@check("CC-PY-013", needs=("activate",))
def activate_differs(context: CheckContext) -> Iterator[Hit]:
    active = {node.name: facts.activate for node, facts in context.known if facts.activate.status is not None}
    aspects = {
        tr("environment"): {name: _environment_name(result.environment) for name, result in active.items()},
        "CUDA toolkit": {name: result.cuda or tr("none") for name, result in active.items()},
        tr("compiler"): {name: result.compiler_version or tr("none") for name, result in active.items()},
    }
    for aspect, values in aspects.items():
        split = split_votes(values)
        if split:
            yield across_nodes(split.odd, tr("{subject}: {text}", subject=aspect, text=split.evidence))


def _environment_name(environment: str | None) -> str:
    return environment.rstrip("/").rpartition("/")[2] if environment else tr("none")


@check("CC-PY-014", needs=("activate",))
def activate_prints_errors(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        output = facts.activate.said or ""
        if facts.activate.status == 0 and ERROR_WORDS.search(output):
            yield on_node(node, output)


@check("CC-PY-015", needs=("installed",))
def packages_differ(context: CheckContext) -> Iterator[Hit]:
    if len({facts.installed.digest for _, facts in context.known}) < 2:
        return
    torches = {facts.torch.version for _, facts in context.known}
    packages_by_node = {
        node.name: exclude_packages(
            parse_packages(facts.installed.packages),
            lambda name: _is_checked_elsewhere(name, len(torches) > 1),
        )
        for node, facts in context.known
        if facts.installed.digest
    }
    split = split_votes({name: str(sorted(packages.items())) for name, packages in packages_by_node.items()})
    if split:
        usual = next(name for name in packages_by_node if split.majority is None or name not in split.odd)
        odd = [
            name
            for name in packages_by_node
            if name in split.odd and packages_by_node[name] != packages_by_node[usual]
        ]
        command = f"{shlex.quote(context.facts[usual].interpreter.executable or 'python3')} -m pip freeze"
        evidence = _describe_differences(packages_by_node, odd, usual, with_reference=split.majority is None)
        yield across_nodes(split.odd, evidence, command=run_on_nodes(context.program, [usual], command))


def _is_checked_elsewhere(name: str, torch_differs: bool) -> bool:
    """Return whether the checks of torch cover a package."""
    if name in {"torch", "pip"} or name.startswith(("nvidia-nccl", "nvidia-cudnn")):
        return True
    return torch_differs and (name.startswith("nvidia-") or "triton" in name)


def _describe_differences(
    packages_by_node: Mapping[str, Mapping[str, str]], odd: list[str], usual: str, *, with_reference: bool
) -> str:
    names_by_text = group_values(
        (describe_difference(packages_by_node[name], packages_by_node[usual]), name) for name in odd
    )
    joined = join_parts(of_nodes(names, text) for text, names in names_by_text.items())
    if not with_reference:
        return joined
    return tr("{differences}; compared with {node}", differences=joined, node=usual)


@check("CC-PY-016", needs=("platform",))
def libc_differs(context: CheckContext) -> Iterator[Hit]:
    split = compare_nodes(context, lambda facts: facts.platform.libc)
    if split:
        yield across_nodes(split.odd, split.evidence)


@check("CC-PY-017", needs=("platform", "torch"))
def libc_is_old(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        libc, torch = parse_version(facts.platform.libc), parse_version(facts.torch.version)
        if libc and torch and libc < OLDEST_GLIBC and torch >= SINCE_TORCH:
            yield on_node(node, join_items([facts.platform.libc or "", f"torch {facts.torch.version}"]))


@check("CC-SETUP-010", needs=("setup",))
def environment_is_not_built(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        if facts.setup.pending:
            yield on_node(node, tr("torch and packages are checked once it exists"))


def _uses_ray(context: CheckContext) -> bool:
    return context.job is not None and context.job.launcher == "ray"


def _ray_version(facts: Facts) -> str | None:
    """Return Ray's version; empty where only the environment will show it that the job's `setup` is to make."""
    return "" if facts.setup.made is False else parse_packages(facts.installed.packages).get("ray")


def _install_ray(context: CheckContext, names: tuple[str, ...], version: str | None) -> str:
    package = f"ray=={version}" if version else "ray"
    lines = {
        node.name: pip_install(node, facts, package) for node, facts in context.known if node.name in names
    }
    return run_on_each(context, lines)


@check("CC-PY-018", needs=("installed",))
def ray_is_missing(context: CheckContext) -> Iterator[Hit]:
    if not _uses_ray(context):
        return
    versions = {node.name: _ray_version(facts) for node, facts in context.known}
    present = {name: version for name, version in versions.items() if version}
    usual = max(present.values(), key=list(present.values()).count, default=None)
    for node, facts in context.known:
        if versions[node.name] is None:
            evidence = tr("{python} has no package ray", python=facts.interpreter.executable or node.python)
            yield on_node(node, evidence, commands=_install_ray(context, (node.name,), usual))


@check("CC-PY-019", needs=("installed",))
def ray_differs(context: CheckContext) -> Iterator[Hit]:
    if not _uses_ray(context):
        return
    with_ray = {node.name: facts for node, facts in context.known if _ray_version(facts)}
    split = split_votes({name: f"ray {_ray_version(facts)}" for name, facts in with_ray.items()})
    if split:
        version = (split.majority or "").removeprefix("ray ")
        commands = _install_ray(context, split.odd, version)
        yield across_nodes(split.odd, split.evidence, "" if version else "any", commands=commands)
    elif split := _compare_python(with_ray):
        yield across_nodes(split.odd, split.evidence, "python")


def _compare_python(with_ray: Mapping[str, Facts]) -> Split | None:
    """Compare all three numbers of the version; where the first two differ CC-PY-010 has reported it."""
    versions = {name: facts.interpreter.version or "" for name, facts in with_ray.items()}
    if len({version.rpartition(".")[0] for version in versions.values()}) > 1:
        return None
    return split_votes({name: f"Python {version}" for name, version in versions.items() if version})


@check("CC-SYS-020", needs=("programs",))
def mpirun_is_missing(context: CheckContext) -> Iterator[Hit]:
    if context.job is None or context.job.launcher != "mpirun":
        return
    for node, facts in context.known:
        missing = [name for name, path in facts.programs.items() if not path]
        if missing:
            command = run_on_each(context, {node.name: as_root(facts, "apt-get install -y openmpi-bin")})
            yield on_node(node, tr("no {names} on the PATH", names=join_items(missing)), command=command)


@check("CC-NET-038", needs=("machine",))
def few_ports_for_ray(context: CheckContext) -> Iterator[Hit]:
    if not _uses_ray(context):
        return
    for node, facts in context.known:
        if node.ports is None or not facts.machine.cpus:
            continue
        (first, last), needed = node.ports, RAY_PORTS + facts.machine.cpus
        if last - first + 1 < needed:
            evidence = tr(
                "{count} ports in {first}-{last}, {needed} needed",
                count=last - first + 1,
                first=first,
                last=last,
                needed=needed,
            )
            yield on_node(node, evidence, first=first, last=first + 4 * needed - 1)
