"""Values given on the command line as KEY=VALUE, put into the tree of a file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from clusterctl.errors import Issue, Place, SpecError
from clusterctl.specs import codes
from clusterctl.specs.document import read_tree, refuse_unsendable
from clusterctl.specs.tree import Scalar, Table, Tree, describe, quoted

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
