"""Run a command on many nodes and show its output."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from clusterctl.cli.context.nodes import open_cluster, report_failures, with_any_python
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.session import Interpreter
from clusterctl.client.rpc.tasks import CommandOutput, OutputCollector
from clusterctl.console.documents.output import write_document
from clusterctl.console.exec import LinePrinter, answers_to_json, show_answers
from clusterctl.console.progress import Phases
from clusterctl.console.terminal import info
from clusterctl.errors import ClusterctlError
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import fold_names
from clusterctl.translation import tr

MAX_OUTPUT = 1 << 20  # bytes of each stream of a node that are kept to be folded
_PLAIN_WORD = re.compile(r"[\w@%+=:,./-]+")


def build_argv(command: Sequence[str]) -> list[str]:
    """Return the argument vector: several words as they are, a single one that is no plain word to sh."""
    if len(command) == 1 and not _PLAIN_WORD.fullmatch(command[0]):
        return ["/bin/sh", "-c", command[0]]
    return list(command)


def run_everywhere(nodes: Sequence[Node], command: Sequence[str], *, fold: bool, as_json: bool) -> int:
    """Run the command on all nodes at once; gives the exit code of the verb."""
    argv, names = build_argv(command), [node.name for node in nodes]
    phases, printer = Phases(names), None if fold else LinePrinter(names, as_json=as_json)
    answers: dict[str, CommandOutput] = {}
    errors: dict[str, ClusterctlError] = {}

    with open_cluster() as cluster:
        cluster.open_early(nodes, keep=False)  # questions come before the live progress
        phases.set_steps(cluster.steps)
        if fold:
            phases.start("exec")
        try:
            for outcome in cluster.each(
                nodes,
                lambda c, node: _run(c, node, argv, printer),
                step=tr("running the command"),
                keep=False,
            ):
                if outcome.value is not None:
                    answers[outcome.node.name] = outcome.value
                    phases.mark_done("exec", outcome.node.name)
                elif outcome.error is not None:
                    errors[outcome.node.name] = outcome.error
                    phases.mark_failed(outcome.node.name)
                if printer is not None:
                    printer.raise_write_error()
        except KeyboardInterrupt:
            phases.stop()
            if fold and not as_json:
                show_answers({name: answers[name] for name in names if name in answers}, MAX_OUTPUT)
                missing = fold_names([name for name in names if name not in answers])
                info(tr("no result yet: {nodes}", nodes=missing))
            raise
        finally:
            phases.stop()
    ordered = {name: answers[name] for name in names if name in answers}
    if as_json and fold:
        messages = {name: f"{error.code} {error.message}" for name, error in errors.items()}
        write_document(answers_to_json(ordered, messages, names))
    elif fold:
        show_answers(ordered, MAX_OUTPUT)
    report_failures(errors[name] for name in names if name in errors)
    return exit_code(ordered.values(), len(errors))


def _run(c: Any, node: Node, argv: Sequence[str], printer: LinePrinter | None) -> CommandOutput:
    def execute(python: Interpreter) -> CommandOutput:
        if printer is None:
            collector = OutputCollector()
            return collector.finish(tasks.execute(c, node, python, argv, MAX_OUTPUT, collector.append))
        end = None
        try:
            end = tasks.execute(
                c, node, python, argv, None, lambda stream, data: printer.on_output(node.name, stream, data)
            )
        finally:
            printer.on_exit(node.name, end)
        return CommandOutput(b"", b"", end)

    return with_any_python(node, execute)[0]


def exit_code(answers: Collection[CommandOutput], failed: int) -> int:
    """Return 4 when no node was reached, 1 when the command failed on one, 5 when a node was not reached, else 0."""
    if not answers:
        return 4
    if not all(answer.end.ok for answer in answers):
        return 1
    return 5 if failed else 0
