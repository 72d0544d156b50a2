"""Text to Job: `--set` overrides, and what one key means for another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from clusterctl.errors import Issue, Location, SpecError
from clusterctl.specs.file_kind import refuse_inventory, refuse_script
from clusterctl.specs.job.model import HEAD_LAUNCHERS, Job
from clusterctl.specs.job.rules import check_rules
from clusterctl.specs.yaml.reader import find_unsendable, read_document, read_tree, sort_issues
from clusterctl.specs.yaml.tree import YamlMapping, YamlScalar, YamlTree, describe, quoted
from clusterctl.specs.yaml.validate import validate
from clusterctl.translation import to_translate

SET_OPTION = "--set"
_FLOW = ("[", "{", '"', "'")
_NULLS = ("~", "null")
_UNDECODED = re.compile(r"[\udc80-\udcff]")  # how Python keeps such bytes, see PEP 383


def apply_overrides(
    tree: YamlMapping, overrides: Sequence[tuple[str, str]]
) -> tuple[YamlMapping, list[Issue]]:
    """Put each value where its dotted key says; the last one wins."""
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
    """Point out a byte of the command line that Python could not read in the terminal's encoding."""
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
    return replace(job, start="auto") if job.keep_warm and not tree.get_key("start") else job
