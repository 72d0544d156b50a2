"""What a launcher needs on the nodes besides Python: Ray and enough ports for it, or Open MPI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusterctl.plans.checks.framework import (
    CheckContext,
    Hit,
    Split,
    across_nodes,
    as_root,
    check,
    join_items,
    on_node,
    pip_install,
    run_on_each,
    split_votes,
)
from clusterctl.plans.checks.python import parse_packages
from clusterctl.plans.launch.launchers import RAY_PORTS
from clusterctl.protocol.messages.facts import Facts
from clusterctl.translation import tr


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
