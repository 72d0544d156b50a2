"""What a client shows of a known error of a rank, from the table of codes.

By which texts it is known stands in `protocol/known_errors.py`, by which the nodes judge as well.
"""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.lookup import find_entry
from clusterctl.protocol.root_cause import Cause
from clusterctl.specs.text import quote_word


def render_command(code: str, values: Mapping[str, str]) -> str:
    """Give the command that shows more about a code; nothing where it needs a name that `values` lacks.

    Each value is quoted for the shell, and so stands outside of the command's own quotes, but for a group of a pattern
    that matches only word characters.
    """
    quoted = {name: quote_word(value) for name, value in values.items()}
    try:
        return find_entry(code).command.format_map(quoted)
    except KeyError:
        return ""


def advised_command(cause: Cause, run: str) -> str:
    """Give the command that shows more about what is known of the cause; nothing if there is none."""
    if cause.symptom_match is None:
        return ""
    rank = {} if cause.failure.rank is None else {"rank": str(cause.failure.rank)}
    names = {**cause.symptom_match.values, **rank, "node": cause.failure.node, "run": run}
    return render_command(cause.symptom_match.symptom.code, names)
