"""Text to Job: rules between keys, `--set` overrides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from clusterctl.errors import Issue, Place, SpecError
from clusterctl.specs import codes, placeholders
from clusterctl.specs.inventory.schema import waivers_of
from clusterctl.specs.job.hooks import end_issues, hook_of, notify_of, on_end_of, setup_issues, setup_of
from clusterctl.specs.job.model import ONE_PROCESS, VISIBLE, Job, Sync
from clusterctl.specs.job.schema import JobFile, restart_issues, restart_of
from clusterctl.specs.yaml.reader import in_order, read_document, read_tree, refuse_unsendable
from clusterctl.specs.yaml.tree import Listing, Scalar, Table, Tree, describe, place_within, quoted
from clusterctl.specs.yaml.validate import examine, repeated, text_at

OPTION = "--set"
_FLOW = ("[", "{", '"', "'")
_NULLS = ("~", "null")
_UNDECODED = re.compile(r"[\udc80-\udcff]")  # how Python keeps such bytes, see PEP 383


def apply_overrides(tree: Table, overrides: Sequence[tuple[str, str]]) -> tuple[Table, list[Issue]]:
    """Put each value where its dotted key says; the last one wins."""
    issues: list[Issue] = []
    for key, text in overrides:
        try:
            if bad := _refuse_undecoded(key, text) or refuse_unsendable(key + text, Place(OPTION, 1, 1)):
                raise SpecError([bad])
            value = _read_value(text, Place(OPTION, 1, len(key) + 2))
            tree = _put(tree, key, 0, value)
        except SpecError as error:
            issues.extend(error.issues)
    return tree, issues


def _refuse_undecoded(key: str, text: str) -> Issue | None:
    """Point out a byte of the command line that Python could not read in the terminal's encoding."""
    bad = _UNDECODED.search(f"{key}={text}")
    if not bad:
        return None
    place = Place(OPTION, 1, bad.start() + 1)
    message = f"the byte 0x{ord(bad.group()) - 0xDC00:02x} cannot be read: the terminal's locale is not UTF-8"
    return Issue(codes.NOT_TEXT, message, place, "put LC_ALL=C.UTF-8 before clusterctl, and type UTF-8")


def _read_value(text: str, place: Place) -> Tree:
    """Read a list, mapping or quoted text as YAML, anything else as the text that it is."""
    if text.startswith(_FLOW):
        value, issues = read_tree(text, place)
        if issues or value is None:
            raise SpecError(issues)
        return value
    return Scalar(None if text in _NULLS else text, text, place)


def _put(tree: Table, path: str, start: int, value: Tree) -> Table:
    """Put a value where the path, read from `start` on, leads from this table."""
    place = Place(OPTION, 1, start + 1)
    head, dot, rest = path[start:].partition(".")
    if not head or (dot and not rest):
        raise SpecError(
            [Issue(codes.OVERRIDE, f"{quoted(path)} is not a key", place, "such as env.NCCL_DEBUG")]
        )
    key = Scalar(head, head, place)
    if not dot:
        return tree.put(head, key, value)
    below = tree.get(head)
    if below is None or (isinstance(below, Scalar) and below.text is None):
        below = Table({}, place)
    if not isinstance(below, Table):
        message = f"{quoted(path)} cannot be set: {quoted(head)} is {describe(below)}"
        raise SpecError([Issue(codes.OVERRIDE, message, place, f"set {quoted(head)} as a whole")])
    return tree.put(head, tree.key(head) or key, _put(below, path, start + len(head) + 1, value))


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


def parse_job(text: str, file: str, overrides: Sequence[tuple[str, str]] = ()) -> Job:
    """Read a job, with keys set on the command line; raises SpecError with all that is wrong."""
    written, issues = read_document(text, file)
    tree, refused = apply_overrides(written, overrides)
    entry, found = examine(tree, JobFile)
    issues = in_order((*issues, *refused, *found, *broken_rules(tree)))
    if issues or entry is None:
        raise SpecError(issues)
    return Job(
        name=entry.name,
        file=file,
        script=entry.script,
        module=entry.module,
        command=entry.command,
        args=entry.args,
        nproc_per_node=entry.nproc_per_node,
        nodes=entry.nodes,
        gpus=entry.gpus,
        exclusive=entry.exclusive,
        launcher=entry.launcher,
        use_env=entry.use_env,
        backend=entry.backend,
        env=entry.env,
        secrets=entry.secrets,
        sync=Sync(source=entry.sync.source, exclude=entry.sync.exclude, via=entry.sync.via),
        setup=setup_of(entry.setup),
        before=hook_of(entry.before),
        after=hook_of(entry.after),
        grace=entry.grace,
        time_limit=entry.time_limit,
        log_limit=entry.log_limit,
        restart=restart_of(entry.restart),
        on_end=on_end_of(entry.on_end),
        notify=notify_of(entry.notify),
        waive=waivers_of(entry.waive, file),
        python=entry.python,
        activate=entry.activate,
    )
