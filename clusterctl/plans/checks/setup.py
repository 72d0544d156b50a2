"""The environment that the job's `setup` makes."""

from __future__ import annotations

from collections.abc import Iterator

from clusterctl.plans.checks.check import Hit, Situation, check, on

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
