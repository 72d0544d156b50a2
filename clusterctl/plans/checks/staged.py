"""What the job's `stage` has copied to the nodes: whether it is still there, and the same on all nodes."""

from __future__ import annotations

from collections.abc import Iterator

from clusterctl.plans.checks.framework import CheckContext, Hit, across_nodes, check, join_items, on_node
from clusterctl.plans.sync.staged import STATES, StagedContent, StagedProblem, newest_by_node
from clusterctl.specs.job.model import Job
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.translation import tr

SHOWN_HASH = 12  # characters of a hash that are shown
SHOWN_FILES = 5


def sources_of(job: Job | None) -> tuple[str, ...]:
    """Return what a job stages."""
    return tuple(dict.fromkeys(stage.label for stage in job.stage)) if job else ()


@check("CC-STAGE-020")
def staged_content_is_incomplete(context: CheckContext) -> Iterator[Hit]:
    """Something of it is missing, was changed or leads nowhere, or a node never got it."""
    for source in sources_of(context.job):
        copies = newest_by_node(context.staged, source)
        for node in context.nodes:
            content = copies.get(node.name)
            if content is None and copies and node.name in context.staged:
                where = fold_names(copies)
                yield on_node(node, tr("{source} is not here; {nodes} has it", source=source, nodes=where))
            elif content is not None and content.state != "whole":
                yield on_node(node, _describe_problems(source, content))


def _describe_problems(source: str, content: StagedContent) -> str:
    """Name the first files of one node together: similar lines of many nodes are shown as one."""
    problems = content.problems[:SHOWN_FILES] or (StagedProblem(content.path, "missing"),)
    texts = [tr(STATES[problem.state], path=problem.path) for problem in problems]
    hidden = content.differing - len(problems)
    more = [tr("{count} more", count=hidden)] if hidden > 0 else []
    folder = content.path.rpartition("/")[0] or "/"
    return tr(
        "{source} in {folder}: {problems}", source=source, folder=folder, problems=join_items([*texts, *more])
    )


@check("CC-STAGE-021")
def staged_contents_differ(context: CheckContext) -> Iterator[Hit]:
    """Nodes got the same source at different times: two revisions, or other files."""
    for source in sources_of(context.job):
        copies = newest_by_node(context.staged, source)
        by_content = group_values(((one.revision, one.tree), name) for name, one in copies.items())
        if len(by_content) > 1:
            parts = [
                tr("{revision} on {nodes}", revision=(revision or tree)[:SHOWN_HASH], nodes=fold_names(names))
                for (revision, tree), names in by_content.items()
            ]
            yield across_nodes(copies, tr("{subject}: {text}", subject=source, text="; ".join(parts)))


@check("CC-STAGE-022")
def staged_twice(context: CheckContext) -> Iterator[Hit]:
    """A node has the same content in two places, as in two caches."""
    wanted = set(sources_of(context.job))
    for node in context.nodes:
        contents = [one for one in context.staged.get(node.name, ()) if one.tree and one.state == "whole"]
        for copies in group_values((one.tree, one) for one in contents).values():
            if len(copies) > 1 and any(one.source in wanted for one in copies):
                yield on_node(node, _describe_copies(copies))


def _describe_copies(copies: list[StagedContent]) -> str:
    paths = ", ".join(sorted(one.path for one in copies))
    return tr(
        "{source} is in {count} places: {paths}", source=copies[0].source, count=len(copies), paths=paths
    )
