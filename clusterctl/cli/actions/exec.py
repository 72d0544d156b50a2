"""Run a command on many nodes and show what they say."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import click

from clusterctl.cli.context.nodes import open_cluster, tell_failures, with_any_python
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.tasks import Answer, Collected
from clusterctl.console.exec import LinePrinter, answers_to_json, show_answers
from clusterctl.console.progress import Phases
from clusterctl.console.terminal import say
from clusterctl.console.text import json_text
from clusterctl.errors import ClusterctlError
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import fold_names

KEEP = 1 << 20  # bytes of each stream of a node that are kept to be folded
_PLAIN_WORD = re.compile(r"[\w@%+=:,./-]+")


def argv_of(words: Sequence[str]) -> list[str]:
    """Give the argument vector: several words as they are, a single one that is no plain word to sh."""
    if len(words) == 1 and not _PLAIN_WORD.fullmatch(words[0]):
        return ["/bin/sh", "-c", words[0]]
    return list(words)


def run_everywhere(nodes: Sequence[Node], words: Sequence[str], *, fold: bool, as_json: bool) -> int:
    """Run the command on all nodes at once; gives the exit code of the verb."""
    argv, names = argv_of(words), [node.name for node in nodes]
    phases, printer = Phases(names), None if fold else LinePrinter(names, as_json=as_json)
    answers: dict[str, Answer] = {}
    errors: dict[str, ClusterctlError] = {}

    with open_cluster() as cluster:
        cluster.open_early(nodes, keep=False)  # a person is asked before the screen moves
        phases.look_at(cluster.steps)
        if fold:
            phases.begin("exec")
        try:
            for outcome in cluster.each(
                nodes, lambda c, node: _run(c, node, argv, printer), step="running it", keep=False
            ):
                if outcome.value is not None:
                    answers[outcome.node.name] = outcome.value
                    phases.arrive("exec", outcome.node.name)
                elif outcome.error is not None:
                    errors[outcome.node.name] = outcome.error
                    phases.fail(outcome.node.name)
                if printer is not None:
                    printer.check()
        except KeyboardInterrupt:
            phases.stop()
            if fold and not as_json:
                show_answers({name: answers[name] for name in names if name in answers}, KEEP)
                say(f"no answer yet: {fold_names([name for name in names if name not in answers])}")
            raise
        finally:
            phases.stop()
    ordered = {name: answers[name] for name in names if name in answers}
    if as_json and fold:
        told = {name: f"{error.code} {error.message}" for name, error in errors.items()}
        click.echo(json_text(answers_to_json(ordered, told, names), indent=2))
    elif fold:
        show_answers(ordered, KEEP)
    tell_failures(errors[name] for name in names if name in errors)
    return exit_code(ordered.values(), len(errors))


def _run(c: Any, node: Node, argv: Sequence[str], printer: LinePrinter | None) -> Answer:
    def ask(used: tasks.Interpreter) -> Answer:
        if printer is None:
            kept = Collected()
            return kept.answer(tasks.execute(c, node, used, argv, KEEP, kept.hear))
        ended = None
        try:
            ended = tasks.execute(
                c, node, used, argv, None, lambda stream, data: printer.hear(node.name, stream, data)
            )
        finally:
            printer.end(node.name, ended)
        return Answer(b"", b"", ended)

    return with_any_python(node, ask)[0]


def exit_code(answers: Collection[Answer], failed: int) -> int:
    """Give 4 when no node was reached, 1 when the command failed on one, 5 when a node was not reached, else 0."""
    if not answers:
        return 4
    if not all(answer.ended.ok for answer in answers):
        return 1
    return 5 if failed else 0
