"""What the keys of a job say together: one program, a launcher that fits, no value given twice."""

from __future__ import annotations

from collections.abc import Iterator

from clusterctl.errors import Issue
from clusterctl.specs import codes, placeholders
from clusterctl.specs.examine import repeated, text_at
from clusterctl.specs.job import ONE_PROCESS, VISIBLE
from clusterctl.specs.job_end import end_issues
from clusterctl.specs.job_restart import restart_issues
from clusterctl.specs.job_setup import setup_issues
from clusterctl.specs.tree import Listing, Scalar, Table, Tree, place_within, quoted

PROGRAMS = ("script", "module", "command")


def broken_rules(tree: Table) -> Iterator[Issue]:
    """Yield what is wrong with keys that are right one by one."""
    yield from _program_issues(tree)
    yield from _launcher_issues(tree)
    yield from _gpu_issues(tree)
    yield from _secret_issues(tree)
    yield from _hole_issues(tree)
    yield from setup_issues(tree)
    yield from restart_issues(tree)
    yield from end_issues(tree)


def _program_issues(tree: Table) -> Iterator[Issue]:
    given = [key for name in PROGRAMS if (key := tree.key(name))]
    if not given:
        fix = "add script: train.py, module: pkg.train, or command: [./train.sh]"
        message = "the job has neither a script nor a module nor a command"
        yield Issue(codes.SCRIPT_OR_MODULE, message, tree.place, fix)
    for key in given[1:]:
        kept = f"the {given[0].text} is at {given[0].place}"
        message = f"a job has one of script, module and command, not both; {kept}"
        yield Issue(codes.SCRIPT_OR_MODULE, message, key.place, "drop one of them")


def _launcher_issues(tree: Table) -> Iterator[Issue]:
    written = text_at(tree, "launcher")
    launcher = (written.text if written else None) or "torchrun"
    command, use_env = tree.key("command"), tree.key("use_env")
    if command and launcher != "command":
        message = f"a command is for `launcher: command`, this job's launcher is {quoted(launcher)}"
        yield Issue(codes.LAUNCHER, message, command.place, "add launcher: command")
    if command and _is_empty(tree.get("command")):
        yield Issue(codes.NO_VALUE, "command: expected at least a program", command.place, "[./train.sh]")
    if launcher == "command" and not command and (tree.key("script") or tree.key("module")):
        assert written is not None
        fix = "command: [./train.sh], or launcher: python for a script"
        yield Issue(codes.LAUNCHER, "`launcher: command` without a command", written.place, fix)
    if use_env and launcher != "launch":
        message = f"use_env is for `launcher: launch`, this job's launcher is {quoted(launcher)}"
        yield Issue(
            codes.LAUNCHER, message, use_env.place, "drop it: LOCAL_RANK is in the environment anyway"
        )


def _gpu_issues(tree: Table) -> Iterator[Issue]:
    gpus, env = tree.key("gpus"), tree.get("env")
    if gpus and _is_empty(tree.get("gpus")):
        fix = "[0, 1], or drop the line for all GPUs; for a job without any: nproc_per_node: 1, backend: gloo"
        yield Issue(codes.NO_VALUE, "gpus: expected at least one index", gpus.place, fix)
    yield from repeated(tree.get("gpus"), "gpus")
    for name in VISIBLE if gpus and isinstance(env, Table) else ():
        assert isinstance(env, Table)
        assert gpus is not None
        if key := env.key(name):
            message = f"{name} in env and gpus at {gpus.place} both choose the GPUs"
            yield Issue(codes.GPUS_TWICE, message, key.place, "keep gpus: it is checked before the start")


def _is_empty(tree: Tree | None) -> bool:
    return isinstance(tree, Listing) and not tree.items


def _secret_issues(tree: Table) -> Iterator[Issue]:
    env, secrets = tree.get("env"), tree.get("secrets")
    yield from repeated(secrets, "secrets")
    if not isinstance(env, Table) or not isinstance(secrets, Listing):
        return
    named = [secret for secret in secrets.items if isinstance(secret, Scalar)]
    for secret in named:
        name = secret.text or ""
        if key := env.key(name):
            message = f"{quoted(name)} is a secret and has a value in env at {key.place}"
            yield Issue(
                codes.SECRET_IN_ENV,
                message,
                secret.place,
                "drop it from env; the value comes from your own environment",
            )


def _hole_issues(tree: Table) -> Iterator[Issue]:
    launcher = text_at(tree, "launcher")
    alone = launcher is not None and launcher.text in ONE_PROCESS
    for scalar in _templates(tree):
        if alone and "${local_rank}" in (scalar.text or "").replace("$${", ""):
            place = place_within(scalar, max(0, scalar.source.find("${local_rank}")))
            message = (
                f"${{local_rank}} is filled in by torchrun, not by `launcher: {launcher and launcher.text}`"
            )
            yield Issue(codes.PLACEHOLDER, message, place, "each node runs one process: use ${node_rank}")
        for problem in placeholders.find_problems(scalar.text or ""):
            place = place_within(scalar, _opening_offset(scalar.source, problem.opening))
            yield Issue(codes.PLACEHOLDER, problem.message, place, problem.fix)


def _templates(tree: Table) -> Iterator[Scalar]:
    env = tree.get("env")
    lists = (tree.get("command"), tree.get("args"))
    values: list[Tree] = [item for one in lists if isinstance(one, Listing) for item in one.items]
    values += [value for _, value in env.entries.values()] if isinstance(env, Table) else []
    yield from (value for value in values if isinstance(value, Scalar))


def _opening_offset(source: str, opening: int) -> int:
    """Find the n-th `${` as it was written; 0 if the text was written with escapes."""
    offset = -1
    for _ in range(opening + 1):
        offset = source.find("${", offset + 1)
        if offset < 0:
            return 0
    return offset
