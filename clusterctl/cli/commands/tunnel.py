"""`ssh`, `forward` and `debug`: into a node or a run, by forwardings of SSH."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import click

from clusterctl.cli.completion import complete_nodes, complete_run
from clusterctl.cli.context.load import Settings, load_inventory
from clusterctl.cli.help import TYPED_KEY, RawArgumentsCommand, VerbCommand
from clusterctl.cli.options import WholeNumber, refuse_mixed, shared_options
from clusterctl.console.terminal import info
from clusterctl.errors import UsageError
from clusterctl.interrupts import INTERRUPTS, announce_nothing
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.text import command_line
from clusterctl.translation import to_translate, tr

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from clusterctl.cli.actions.find_runs import FoundRuns
    from clusterctl.client.forward import PortRefusedError
    from clusterctl.client.rpc.cluster import Cluster
    from clusterctl.client.rpc.session import Interpreter, Session
    from clusterctl.plans.runs.selection import Parts
    from clusterctl.protocol.untrusted import Untrusted
    from clusterctl.specs.inventory.model import Inventory, Node

PORT = to_translate("{value!r} is not a port")
MAX_REASON = 40  # characters


@click.command(
    cls=RawArgumentsCommand,
    examples=[
        ("clusterctl ssh gpu02", "a shell at home"),
        ("clusterctl ssh gpu02 --run train-2026", "in the run's code, with its environment"),
        ("clusterctl ssh gpu02 --run train-2026 -- python -i", "a program in its place"),
    ],
)
@click.argument("node", metavar="NODE", shell_complete=complete_nodes)
@click.argument("former_run", metavar="", required=False)  # as `--run`, for older scripts
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--run", metavar="RUN", shell_complete=complete_run, help="In the directory and environment of this run."
)
@shared_options
def ssh(
    settings: Settings, node: str, former_run: str | None, run: str | None, command: tuple[str, ...]
) -> int:
    """Open a shell on a node; with --run in the run's directory and environment.

    The terminal is a real one, and the exit code is the shell's. The variables are those of a live process of the run,
    its secrets included, without RANK and others that belong to one rank; of a run that has ended, those of the job.
    The shell is no part of the run: `stop` does not end it. It ends with the connection.
    """
    from clusterctl.cli.context.nodes import open_cluster, with_any_python
    from clusterctl.client.forward import run_in_terminal
    from clusterctl.client.rpc.tasks import prepare_shell
    from clusterctl.plans.ssh import render_terminal_command, step_argv

    if run is None:
        run, command = _split_command(click.get_current_context().meta[TYPED_KEY], former_run, command)
    elif former_run is not None:  # the first word of the program
        command = (former_run, *command)
    if command:
        refuse_mixed(command, "ssh")
    inventory = load_inventory(settings, on_slurm=True)
    if inventory.slurm is not None:
        from clusterctl.cli.actions.find_runs import with_live_nodes

        inventory = with_live_nodes(inventory)
    chosen = _choose_node(inventory, node)
    words, activate, step = command, None, ()
    with open_cluster() as cluster:
        if run:
            run_id = _find_run(cluster, inventory, run, settings.command).run_id
            connection = cluster.connection(chosen)
            program, python = with_any_python(
                chosen, lambda python: prepare_shell(connection, chosen, python, run_id)
            )
            words, activate = (*program, *command), python.activate
        if chosen.allocation is not None and chosen.allocation.job:
            terminal = ("--pty",) if sys.stdin.isatty() else ()
            step = (*step_argv(chosen.allocation.job, chosen.name), *terminal)
        remote = render_terminal_command(words, activate, step) if words or step else ""
        return run_in_terminal(cluster.open_with_ssh(chosen), remote)


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl forward 6006", "TensorBoard on node 0 of your newest run: http://localhost:6006"),
        ("clusterctl forward train-2026 8265:9000", "another run, another port here"),
        ("clusterctl forward 5678 --nodes gpu02", "a port of another node"),
        ("clusterctl forward 8888:./jupyter.sock", "a socket that only you can use"),
    ],
    former={"--node": "--nodes"},
)
@click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_run)
@click.argument("port", metavar="PORT[:LOCAL]", required=False)
@click.option(
    "--nodes",
    "node",
    metavar="NODE",
    help="The node; default: node 0 of the run.",
    shell_complete=complete_nodes,
)
@shared_options
def forward(settings: Settings, run: str | None, port: str | None, node: str | None) -> int:
    """Connect a port of this machine to a port of a run's node, until Ctrl-C.

    RUN is a run id, its short form or an unambiguous prefix; default: your newest run.

    Listens on 127.0.0.1 only, where every account of this machine can connect. With a path in place of LOCAL, such as
    6006:./sock, it listens on a Unix socket that only you can use. On the node the connection goes to the loopback
    address, else to the node's training address, so a program that listens on either is reached: TensorBoard, a
    dashboard, a debugger. Works over bastions.
    """
    from clusterctl.cli.context.nodes import open_cluster
    from clusterctl.client.forward import listen, render_address, serve, stop_listening

    if run is None:
        raise click.UsageError(tr("PORT is missing"), click.get_current_context())
    run, port = (run, port) if port is not None else (None, run)  # a single word is the port
    remote, local = _parse_target(port)
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
        found = _find_run(cluster, inventory, run, settings.command, verb="forward")
        chosen = found.choose(node)
        carry = _choose_carrier(cluster, found, chosen, remote)
        info(tr("{here} -> {node}:{port}; Ctrl-C ends", here=here, node=chosen.name, port=remote))
        try:
            with INTERRUPTS.leaving(announce_nothing):
                serve(listener, carry, _report_refused)
        except KeyboardInterrupt:
            return INTERRUPTS.exit_code_of_server


def _choose_carrier(
    cluster: Cluster, found: FoundRun, node: Node, port: int
) -> Callable[[socket.socket], None]:
    """Choose what carries the connections: SSH's forwarding, or a session for each where there is none of ours."""
    from clusterctl.client.forward import PortForward, carry_in_session, read_address
    from clusterctl.client.openssh import OpensshConnection
    from clusterctl.client.rpc.tasks import ANSWER_LIMIT, connect

    def open_session() -> Session:
        session: Session = connect(
            cluster.connection(node), node, found.interpreters[node.name], found.run_id, "port", port
        )
        return session

    way = cluster.connection(node)
    if node.allocation is not None or isinstance(way, OpensshConnection):
        return lambda connection: carry_in_session(open_session(), connection)
    return PortForward(
        way.transport, node.name, port, lambda: read_address(open_session(), ANSWER_LIMIT)
    ).carry


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl debug", "rank 0 of your newest run"),
        ("clusterctl debug train-2026 --rank 3", "another rank"),
        ("clusterctl debug c82d --rank 1", "the run with this short id"),
    ],
)
@click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_run)
@click.option(
    "--rank",
    type=WholeNumber(to_translate("{value!r} is not a rank")),
    metavar="N",
    default=0,
    help="The global rank; default: 0.",
)
@shared_options
def debug(settings: Settings, run: str | None, rank: int) -> int:
    """Type in pdb of a rank that waits at `breakpoint()`.

    The run must have been started with `launch --debug`, or `debug: true` in the job. Waits until the rank comes to a
    breakpoint. Ctrl-D or Ctrl-C leaves: the rank keeps waiting, and `debug` can be called again. `c` continues it,
    `q` ends it. The other ranks wait in their next collective until their timeout, which is that of
    init_process_group: 10 minutes with NCCL, 30 with Gloo, unless the script sets it.
    """
    from clusterctl.cli.context.nodes import open_cluster
    from clusterctl.client.rpc.tasks import connect

    inventory = load_inventory(settings, on_slurm=True)
    with open_cluster() as cluster:
        found = _find_run(cluster, inventory, run, settings.command, verb="debug")
        chosen = found.find_rank(rank)
        python = found.interpreters[chosen.name]
        with connect(cluster.connection(chosen), chosen, python, found.run_id, "rank", rank) as session:
            again = command_line("debug", found.run_id, "--rank", str(rank), command=settings.command)
            return _serve_debugger(session, rank, again)


def _split_command(
    typed: Sequence[str], run: str | None, command: tuple[str, ...]
) -> tuple[str | None, tuple[str, ...]]:
    """Take a word behind `--` for the program, also where RUN was left out: click has taken the `--` away."""
    if run is None or "--" not in typed or run in typed[: typed.index("--")]:
        return run, command
    return None, (run, *command)


class FoundRun(NamedTuple):
    """A run, its parts by node, and the nodes that answered."""

    run_id: RunId
    parts: Parts
    nodes: dict[str, Node]
    interpreters: dict[str, Interpreter]

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


def _find_run(
    cluster: Cluster, inventory: Inventory, run: str | None, command: str, verb: str = ""
) -> FoundRun:
    """Find a run; `verb` is one that needs the run to have its nodes."""
    from clusterctl.cli.actions.find_runs import choose_found_run, find_runs, refuse_without_nodes
    from clusterctl.cli.context.nodes import report_failures
    from clusterctl.plans.runs.selection import choose_run

    found: FoundRuns = find_runs(cluster, inventory.nodes, run, only_one=True)
    report_failures(found.errors)
    run_id = choose_found_run(choose_run, found.runs, run)
    parts = found.runs[run_id]
    if verb:
        refuse_without_nodes(found, run_id, verb, command)
    nodes = {
        node.name: node
        for node in found.nodes_of(run_id)
        if parts.get(node.name) and node.name in found.pythons
    }
    return FoundRun(run_id, parts, nodes, found.pythons)


def _choose_node(inventory: Inventory, name: str) -> Node:
    from clusterctl.plans.launch.placement import choose_nodes

    nodes = choose_nodes(inventory, name, None)
    if len(nodes) > 1:
        raise UsageError("CC-USE-097", pattern=name, nodes=", ".join(node.name for node in nodes))
    return nodes[0]


def _parse_target(text: str) -> tuple[int, int | str]:
    """Read PORT[:LOCAL]; the same port here if there is none; with a slash LOCAL is the path of a socket."""
    remote, colon, local = text.partition(":")
    kind = WholeNumber(PORT, 1, 65535)
    first = kind.convert(remote, None, click.get_current_context(silent=True))
    if "/" in local:
        return first, local
    return first, kind.convert(local, None, click.get_current_context(silent=True)) if colon else first


def _report_refused(error: PortRefusedError) -> None:
    from clusterctl.cli.context.nodes import notice
    from clusterctl.console.text import sanitize

    notice(tr("the connection was refused: {reason}", reason=sanitize(str(error))))


def _serve_debugger(session: Session, rank: int, again: str) -> int:
    from clusterctl.client.forward import Relay

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
