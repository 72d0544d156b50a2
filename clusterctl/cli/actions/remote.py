"""Programs on nodes: `exec` runs one on many; `ssh`, `forward` and `debug` connect to one, by forwardings of SSH."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterctl.cli.context.load import load_inventory
from clusterctl.cli.context.nodes import notice, open_cluster, report_failures, with_any_python
from clusterctl.cli.context.settings import Settings
from clusterctl.client.forward import (
    PortForward,
    PortRefusedError,
    Relay,
    carry_in_session,
    listen,
    read_address,
    render_address,
    run_in_terminal,
    serve,
    stop_listening,
)
from clusterctl.client.openssh import OpensshConnection
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.client.rpc.tasks import CommandOutput, OutputCollector
from clusterctl.console.documents.output import write_document
from clusterctl.console.lines import LinePrinter, answers_to_json, show_answers
from clusterctl.console.progress import Phases
from clusterctl.console.terminal import info
from clusterctl.console.text import sanitize
from clusterctl.errors import ClusterctlError, UsageError
from clusterctl.interrupts import INTERRUPTS, announce_nothing
from clusterctl.plans.launch.placement import choose_nodes
from clusterctl.plans.runs.selection import choose_run
from clusterctl.plans.ssh import render_terminal_command, step_argv
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.client.rpc.cluster import Cluster
    from clusterctl.plans.runs.state import Parts
    from clusterctl.protocol.untrusted import Untrusted
    from clusterctl.specs.inventory.model import Inventory

MAX_REASON = 40  # characters
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
            outcomes = cluster.each(
                nodes,
                lambda c, node: _run(c, node, argv, printer),
                step=tr("running the command"),
                keep=False,
            )
            for outcome in phases.follow("exec", outcomes):
                if outcome.value is not None:
                    answers[outcome.node.name] = outcome.value
                elif outcome.error is not None:
                    errors[outcome.node.name] = outcome.error
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


def reachable_nodes(settings: Settings) -> Inventory:
    """Read the inventory; of a Slurm cluster only nodes of one's live runs can be reached."""
    inventory = load_inventory(settings, on_slurm=True)
    if inventory.slurm is None:
        return inventory
    from clusterctl.cli.actions.find_runs import with_live_nodes

    return with_live_nodes(inventory)


def open_shell(settings: Settings, name: str, run: str | None, command: Sequence[str]) -> int:
    """Open a shell on a node, or run a command in its place; gives its exit code."""
    inventory = reachable_nodes(settings)
    nodes = choose_nodes(inventory, name, None)
    if len(nodes) > 1:
        raise UsageError("CC-USE-097", pattern=name, nodes=", ".join(node.name for node in nodes))
    node, activate, step = nodes[0], None, ()
    words: Sequence[str] = command
    with open_cluster() as cluster:
        if run:
            run_id = FoundRun.find(cluster, inventory, run, settings.command).run_id
            connection = cluster.connection(node)
            program, python = with_any_python(
                node, lambda python: tasks.prepare_shell(connection, node, python, run_id)
            )
            words, activate = (*program, *command), python.activate
        if node.allocation is not None and node.allocation.job:
            terminal = ("--pty",) if sys.stdin.isatty() else ()
            step = (*step_argv(node.allocation.job, node.name), *terminal)
        remote = render_terminal_command(words, activate, step) if words or step else ""
        return run_in_terminal(cluster.open_with_ssh(node), remote)


def forward_port(settings: Settings, run: str | None, port: int, local: int | str, name: str | None) -> int:
    """Connect a port or a socket of this machine to a port of a run's node, until Ctrl-C."""
    inventory = load_inventory(settings, on_slurm=True)
    try:
        listener = listen(local)
    except OSError as error:
        address = f"127.0.0.1:{local}" if isinstance(local, int) else local
        raise UsageError("CC-USE-094", address=address, reason=error.strerror or str(error)) from error
    with ExitStack() as stack:
        stack.callback(stop_listening, listener)
        cluster = stack.enter_context(open_cluster())
        here = render_address(listener)
        found = FoundRun.find(cluster, inventory, run, settings.command, verb="forward")
        node = found.choose(name)
        carry = _choose_carrier(cluster, found, node, port)
        info(tr("{here} -> {node}:{port}; Ctrl-C ends", here=here, node=node.name, port=port))
        try:
            with INTERRUPTS.leaving(announce_nothing):
                serve(listener, carry, _report_refused)
        except KeyboardInterrupt:
            return INTERRUPTS.exit_code_of_server


def _choose_carrier(
    cluster: Cluster, found: FoundRun, node: Node, port: int
) -> Callable[[socket.socket], None]:
    """Choose what carries the connections: SSH's forwarding, or a session for each where there is none of ours."""

    def open_session() -> Session:
        session: Session = tasks.connect(
            cluster.connection(node), node, found.interpreters[node.name], found.run_id, "port", port
        )
        return session

    way = cluster.connection(node)
    if node.allocation is not None or isinstance(way, OpensshConnection):
        return lambda connection: carry_in_session(open_session(), connection)
    return PortForward(
        way.transport, node.name, port, lambda: read_address(open_session(), tasks.ANSWER_LIMIT)
    ).carry


def _report_refused(error: PortRefusedError) -> None:
    notice(tr("the connection was refused: {reason}", reason=sanitize(str(error))))


def debug_rank(settings: Settings, run: str | None, rank: int) -> int:
    """Connect the terminal to pdb of a rank; gives the exit code."""
    inventory = load_inventory(settings, on_slurm=True)
    with open_cluster() as cluster:
        found = FoundRun.find(cluster, inventory, run, settings.command, verb="debug")
        node = found.find_rank(rank)
        python = found.interpreters[node.name]
        with tasks.connect(cluster.connection(node), node, python, found.run_id, "rank", rank) as session:
            again = command_line("debug", found.run_id, "--rank", str(rank), command=settings.command)
            return _serve_debugger(session, rank, again)


def _serve_debugger(session: Session, rank: int, again: str) -> int:
    def on_frame(header: Untrusted) -> bool:
        if "waits" in header:
            relay.connected = not header.is_null("waits")
            info(_describe_wait(rank, waits=relay.connected))
            return True
        reason = header.text("closed", MAX_REASON)
        relay.connected = reason == "left"
        if reason == "ended":
            info(tr("rank {rank} has ended", rank=rank))
        elif reason == "continued" and relay.finished:  # what was typed has ended
            info(tr("rank {rank} continues", rank=rank))
        elif reason == "continued":
            info(tr("rank {rank} continues; waiting for its next breakpoint, Ctrl-C ends", rank=rank))
            return True
        return False

    relay, code = Relay(session, sys.stdin.fileno(), sys.stdout.fileno(), on_frame), 0
    try:
        with INTERRUPTS.leaving(announce_nothing):
            relay.run()
    except KeyboardInterrupt:
        code = INTERRUPTS.exit_code_of_server
    if relay.connected:
        info(tr("rank {rank} still waits; again: {command}", rank=rank, command=again))
    return code


def _describe_wait(rank: int, *, waits: bool) -> str:
    if not waits:
        return tr("rank {rank} is at no breakpoint yet; waiting, Ctrl-C ends", rank=rank)
    return tr(
        "rank {rank} waits at a breakpoint; the other ranks wait for it until their timeout "
        "(NCCL 10 min, Gloo 30 min, unless the script sets one)",
        rank=rank,
    )


class FoundRun(NamedTuple):
    """A run, its parts by node, and the nodes that answered."""

    run_id: RunId
    parts: Parts
    nodes: dict[str, Node]
    interpreters: dict[str, Interpreter]

    @classmethod
    def find(
        cls, cluster: Cluster, inventory: Inventory, run: str | None, command: str, verb: str = ""
    ) -> FoundRun:
        """Find a run; `verb` is one that needs the run to have its nodes."""
        from clusterctl.cli.actions.find_runs import choose_found_run, find_runs, refuse_without_nodes

        found = find_runs(cluster, inventory.nodes, run, only_one=True)
        report_failures(found.errors)
        run_id = choose_found_run(choose_run, found.runs, run)
        if verb:
            refuse_without_nodes(found, run_id, verb, command)
        nodes = {node.name: node for node in found.holders(run_id)}
        return cls(run_id, found.runs[run_id], nodes, found.pythons)

    def choose(self, name: str | None) -> Node:
        """Choose a node of the run: the one that is named, else node 0."""
        found = [
            self.nodes[node]
            for node, part in self.parts.items()
            if part and node in self.nodes and (node == name if name else part.node_rank == 0)
        ]
        if not found:
            raise UsageError(
                "CC-USE-095", run=self.run_id, name=name or tr("node 0"), nodes=", ".join(self.nodes)
            )
        return found[0]

    def find_rank(self, rank: int) -> Node:
        """Find the node that has a rank."""
        ranks = {
            one.rank: node
            for node, part in self.parts.items()
            if part and node in self.nodes
            for one in part.ranks
        }
        if rank not in ranks:
            raise UsageError(
                "CC-USE-096",
                run=self.run_id,
                rank=rank,
                ranks=", ".join(map(str, sorted(ranks))) or tr("none"),
            )
        return self.nodes[ranks[Rank(rank)]]
