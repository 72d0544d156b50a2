"""The Python of the nodes, and what leads to it."""

from __future__ import annotations

from collections.abc import Iterator

from clusterctl.plans.checks.check import Hit, Situation, across, check, on
from clusterctl.plans.checks.remedy import in_inventory, ssh_to
from clusterctl.plans.checks.voting import split_votes


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
            yield on(node, f"activate ended with status {status}", ssh_to(node, line) if line else "")
