"""Text to Job: `--set` overrides, rules between keys that are right one by one, what one key means for another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from clusterctl.errors import Issue, Location, SpecError
from clusterctl.specs import placeholders
from clusterctl.specs.fields import keys_of
from clusterctl.specs.importers.detect import refuse_inventory, refuse_script
from clusterctl.specs.job.checkpoints import find_checkpoint_issues
from clusterctl.specs.job.model import (
    HEAD_LAUNCHERS,
    SINGLE_PROCESS_LAUNCHERS,
    VISIBLE_DEVICES_VARIABLES,
    Job,
    Setup,
)
from clusterctl.specs.job.stage import find_stage_issues
from clusterctl.specs.kinds import ENVIRONMENT_KINDS, SERVICES, SIGNED_SERVICES
from clusterctl.specs.yaml.reader import find_unsendable, read_document, read_tree, sort_issues
from clusterctl.specs.yaml.tree import (
    YamlList,
    YamlMapping,
    YamlScalar,
    YamlTree,
    describe,
    find_scalar,
    location_within,
    quoted,
)
from clusterctl.specs.yaml.validate import find_duplicates, validate
from clusterctl.translation import to_translate

PROGRAMS = ("script", "module", "command")
SET_OPTION = "--set"
_FLOW = ("[", "{", '"', "'")
_NULLS = ("~", "null")
_UNDECODED = re.compile(r"[\udc80-\udcff]")  # how Python keeps such bytes, see PEP 383


def parse_job(text: str, file: str, overrides: Sequence[tuple[str, str]] = ()) -> Job:
    """Read a job, with keys set on the command line; raises SpecError with all that is wrong."""
    refuse_script(text, file, to_translate("a job file"))
    document, issues = read_document(text, file)
    refuse_inventory(document, file)
    tree, override_issues = apply_overrides(document, overrides)
    job, model_issues = validate(tree, Job, file=file)
    issues = sort_issues((*issues, *override_issues, *model_issues, *check_rules(tree)))
    if issues or job is None:
        raise SpecError(issues)
    if job.launcher in HEAD_LAUNCHERS:
        job = replace(job, ends_with="node 0")
    return replace(job, start="fork") if job.keep_warm and not tree.get_key("start") else job


def apply_overrides(
    tree: YamlMapping, overrides: Sequence[tuple[str, str]]
) -> tuple[YamlMapping, list[Issue]]:
    """Set each value at its dotted key; of several the last one counts."""
    issues: list[Issue] = []
    for key, text in overrides:
        try:
            if issue := _find_undecoded(key, text) or find_unsendable(key + text, Location(SET_OPTION, 1, 1)):
                raise SpecError([issue])
            value = _read_value(text, Location(SET_OPTION, 1, len(key) + 2))
            tree = _set_value(tree, key, 0, value)
        except SpecError as error:
            issues.extend(error.issues)
    return tree, issues


def _find_undecoded(key: str, text: str) -> Issue | None:
    """Report a byte of the command line that Python could not decode."""
    match = _UNDECODED.search(f"{key}={text}")
    if not match:
        return None
    location = Location(SET_OPTION, 1, match.start() + 1)
    return Issue.of("CC-SPEC-002", "locale", location, byte=ord(match.group()) - 0xDC00)


def _read_value(text: str, location: Location) -> YamlTree:
    """Read a list, mapping or quoted text as YAML, anything else as the text that it is."""
    if text.startswith(_FLOW):
        value, issues = read_tree(text, location)
        if issues or value is None:
            raise SpecError(issues)
        return value
    return YamlScalar(None if text in _NULLS else text, text, location)


def _set_value(tree: YamlMapping, path: str, offset: int, value: YamlTree) -> YamlMapping:
    """Put a value where the path, read from `offset` on, leads from this table."""
    location = Location(SET_OPTION, 1, offset + 1)
    head, dot, rest = path[offset:].partition(".")
    if not head or (dot and not rest):
        raise SpecError([Issue.of("CC-SPEC-040", "no-key", location, path=quoted(path))])
    key = YamlScalar(head, head, location)
    if not dot:
        return tree.with_entry(head, key, value)
    child = tree.get(head)
    if child is None or (isinstance(child, YamlScalar) and child.text is None):
        child = YamlMapping({}, location)
    if not isinstance(child, YamlMapping):
        raise SpecError(
            [
                Issue.of(
                    "CC-SPEC-040",
                    "not-a-table",
                    location,
                    path=quoted(path),
                    head=quoted(head),
                    found=describe(child),
                )
            ]
        )
    return tree.with_entry(
        head, tree.get_key(head) or key, _set_value(child, path, offset + len(head) + 1, value)
    )


def check_rules(tree: YamlMapping) -> Iterator[Issue]:
    """Yield what is wrong with keys that are right one by one."""
    yield from _program_issues(tree)
    yield from _launcher_issues(tree)
    yield from find_duplicates(tree.get("preload"), "preload")
    yield from _gpu_issues(tree)
    yield from _secret_issues(tree)
    yield from _placeholder_issues(tree)
    setup = tree.get("setup")
    yield from _setup_issues(setup) if isinstance(setup, YamlMapping) else ()
    yield from find_stage_issues(tree)
    yield from _restart_issues(tree)
    yield from find_checkpoint_issues(tree)
    yield from _hook_issues(tree)


def _program_issues(tree: YamlMapping) -> Iterator[Issue]:
    program_keys = [key for name in PROGRAMS if (key := tree.get_key(name))]
    if not program_keys:
        yield Issue.of("CC-SPEC-030", "none", tree.location)
    for key in program_keys[1:]:
        other = program_keys[0]
        yield Issue.of("CC-SPEC-030", "several", key.location, other=other.text, place=other.location)


def _launcher_issues(tree: YamlMapping) -> Iterator[Issue]:
    launcher_value = find_scalar(tree, "launcher")
    launcher = (launcher_value.text if launcher_value else None) or "torchrun"
    command, use_env = tree.get_key("command"), tree.get_key("use_env")
    if command and launcher not in ("command", *HEAD_LAUNCHERS):
        yield Issue.of("CC-SPEC-034", "command", command.location, launcher=quoted(launcher))
    if command and _is_empty(tree.get("command")):
        yield Issue.of("CC-SPEC-014", "empty-command", command.location)
    if launcher == "command" and not command and (tree.get_key("script") or tree.get_key("module")):
        assert launcher_value is not None
        yield Issue.of("CC-SPEC-034", "no-command", launcher_value.location)
    warm_time = find_scalar(tree, "keep_warm")
    keep_warm = tree.get_key("keep_warm") if warm_time and warm_time.text != "0" else None
    if keep_warm and launcher != "torchrun":
        yield Issue.of("CC-SPEC-034", "keep-warm", keep_warm.location, launcher=quoted(launcher))
    start = find_scalar(tree, "start")
    if keep_warm and start and start.text == "exec":
        yield Issue.of("CC-SPEC-034", "keep-warm-exec", start.location, place=keep_warm.location)
    if use_env and launcher != "launch":
        yield Issue.of("CC-SPEC-034", "use-env", use_env.location, launcher=quoted(launcher))
    yield from _non_python_issues(tree, launcher)
    ends_with = find_scalar(tree, "ends_with")
    if ends_with and ends_with.text == "node 0" and launcher not in SINGLE_PROCESS_LAUNCHERS:
        yield Issue.of("CC-SPEC-034", "ends-with", ends_with.location, launcher=quoted(launcher))
    if ends_with and ends_with.text == "all" and launcher in HEAD_LAUNCHERS:
        yield Issue.of("CC-SPEC-034", "ends-with-head", ends_with.location, launcher=quoted(launcher))


def _non_python_issues(tree: YamlMapping, launcher: str) -> Iterator[Issue]:
    """Yield what is wrong with a shell script: Python would end with a SyntaxError on every rank."""
    script, no_python = find_scalar(tree, "script"), find_scalar(tree, "no_python")
    asked = no_python is not None and no_python.text == "true"
    if asked and no_python is not None and (launcher in SINGLE_PROCESS_LAUNCHERS or tree.get_key("module")):
        key = "module" if tree.get_key("module") else f"launcher: {launcher}"
        yield Issue.of("CC-SPEC-034", "no-python", no_python.location, key=quoted(key))
    if script and (script.text or "").endswith(".sh") and not asked:
        case = "shell-python" if launcher in SINGLE_PROCESS_LAUNCHERS else "shell-torchrun"
        yield Issue.of("CC-SPEC-034", case, script.location, script=quoted(script.text or ""))


def _gpu_issues(tree: YamlMapping) -> Iterator[Issue]:
    gpus, env = tree.get_key("gpus"), tree.get("env")
    if gpus and _is_empty(tree.get("gpus")):
        yield Issue.of("CC-SPEC-014", "empty-gpus", gpus.location)
    yield from find_duplicates(tree.get("gpus"), "gpus")
    for name in VISIBLE_DEVICES_VARIABLES if gpus and isinstance(env, YamlMapping) else ():
        assert isinstance(env, YamlMapping)
        assert gpus is not None
        if key := env.get_key(name):
            yield Issue.of("CC-SPEC-035", "", key.location, name=name, location=gpus.location)


def _is_empty(tree: YamlTree | None) -> bool:
    return isinstance(tree, YamlList) and not tree.items


def _secret_issues(tree: YamlMapping) -> Iterator[Issue]:
    env, secrets = tree.get("env"), tree.get("secrets")
    yield from find_duplicates(secrets, "secrets")
    if not isinstance(env, YamlMapping) or not isinstance(secrets, YamlList):
        return
    secret_scalars = [secret for secret in secrets.items if isinstance(secret, YamlScalar)]
    for secret in secret_scalars:
        name = secret.text or ""
        if key := env.get_key(name):
            yield Issue.of("CC-SPEC-032", "", secret.location, name=quoted(name), location=key.location)


def _placeholder_issues(tree: YamlMapping) -> Iterator[Issue]:
    launcher = find_scalar(tree, "launcher")
    is_single_process = launcher is not None and launcher.text in SINGLE_PROCESS_LAUNCHERS
    for scalar in _find_templates(tree):
        if is_single_process and "${local_rank}" in (scalar.text or "").replace("$${", ""):
            location = location_within(scalar, max(0, scalar.source.find("${local_rank}")))
            yield Issue.of("CC-SPEC-033", "local-rank", location, launcher=launcher and launcher.text)
        for problem in placeholders.find_problems(scalar.text or ""):
            location = location_within(scalar, _opening_offset(scalar.source, problem.opening_index))
            yield Issue.of("CC-SPEC-033", problem.case, location, **problem.facts)


def _find_templates(tree: YamlMapping) -> Iterator[YamlScalar]:
    env = tree.get("env")
    lists = (tree.get("command"), tree.get("args"))
    path = find_scalar(tree, "checkpoints", "path")
    values: list[YamlTree] = [path] if path else []
    values += [item for listing in lists if isinstance(listing, YamlList) for item in listing.items]
    values += [value for _, value in env.entries.values()] if isinstance(env, YamlMapping) else []
    yield from (value for value in values if isinstance(value, YamlScalar))


def _opening_offset(source: str, opening: int) -> int:
    """Find the n-th `${` as it was written; 0 if the text was written with escapes."""
    offset = -1
    for _ in range(opening + 1):
        offset = source.find("${", offset + 1)
        if offset < 0:
            return 0
    return offset


def _restart_issues(tree: YamlMapping) -> Iterator[Issue]:
    """Yield what is wrong with these keys together."""
    restart, stall = tree.get("restart"), tree.get("stall")
    then = find_scalar(stall, "then") if isinstance(stall, YamlMapping) else None
    if then is not None and then.text == "restart" and not isinstance(restart, YamlMapping):
        yield Issue.of("CC-SPEC-013", "stall-restart", then.location)
    yield from _min_nodes_issues(tree)
    reasons = restart.get("on") if isinstance(restart, YamlMapping) else None
    yield from find_duplicates(reasons, "restart.on")
    if isinstance(reasons, YamlList) and not reasons.items:
        yield Issue.of("CC-SPEC-014", "empty-restart-on", reasons.location)


def _min_nodes_issues(tree: YamlMapping) -> Iterator[Issue]:
    """Yield what is wrong with `min_nodes`; how many nodes a pattern is shows only at the launch."""
    least, nodes = find_scalar(tree, "min_nodes"), find_scalar(tree, "nodes")
    if least is None or least.text is None:
        return
    if not isinstance(tree.get("restart"), YamlMapping):
        yield Issue.of("CC-SPEC-013", "min-nodes-restart", least.location)
    counts = [scalar.text or "" for scalar in (least, nodes) if scalar is not None]
    are_counts = len(counts) > 1 and all(re.fullmatch("[0-9]{1,9}", text) for text in counts)
    if are_counts and int(counts[0]) >= int(counts[1]):
        yield Issue.of("CC-SPEC-013", "min-nodes", least.location, text=counts[0], nodes=counts[1])


def _setup_issues(setup: YamlMapping) -> Iterator[Issue]:
    """Yield what is wrong with these keys together."""
    kinds = [key for kind in ENVIRONMENT_KINDS if (key := setup.get_key(kind))]
    misspelled = setup.entries.keys() - keys_of(Setup).keys()  # one of these, and reported as that
    if not kinds and not setup.get_key("run") and not misspelled:
        yield Issue.of("CC-SPEC-011", "empty-setup", setup.location)
    for key in kinds[1:]:
        yield Issue.of(
            "CC-SPEC-036", "several-kinds", key.location, text=kinds[0].text, location=kinds[0].location
        )
    if kinds and kinds[0].text != "conda":
        return
    for name in ("wheelhouse", "system_site_packages"):
        if key := setup.get_key(name):
            yield Issue.of("CC-SPEC-036", "not-conda" if kinds else "no-kind", key.location, name=name)


def _hook_issues(tree: YamlMapping) -> Iterator[Issue]:
    """Yield what is wrong with these keys together."""
    on_end, notify = tree.get("on_end"), tree.get("notify")
    if isinstance(on_end, YamlMapping):
        command, key = on_end.get("command"), on_end.get_key("command")
        if key and isinstance(command, YamlList) and not command.items:
            yield Issue.of("CC-SPEC-014", "empty-on-end", key.location)
        yield from find_duplicates(on_end.get("when"), "on_end.when")
    for entry in notify.items if isinstance(notify, YamlList) else ():
        if isinstance(entry, YamlMapping):
            yield from _notify_issues(entry)


def _notify_issues(entry: YamlMapping) -> Iterator[Issue]:
    service, secret = find_scalar(entry, "to"), entry.get_key("secret_from")
    yield from find_duplicates(entry.get("when"), "notify.when")
    if service and service.text in SERVICES and service.text not in SIGNED_SERVICES and secret:
        yield Issue.of("CC-SPEC-013", "unsigned-service", secret.location, text=service.text)
