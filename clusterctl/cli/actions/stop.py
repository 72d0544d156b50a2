"""Stop a run on its nodes and tell what was ended."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence

import click

from clusterctl.cli.context.nodes import myself, tell_failures
from clusterctl.cli.options import confirm
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.console.runs import describe_launch, describe_run
from clusterctl.console.text import sanitize
from clusterctl.errors import NodeError, UsageError
from clusterctl.plans.runs.selection import Parts, Runs, choose_live_run, is_live, owner_of
from clusterctl.plans.runs.verdict import STOPPED_BY
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import fold_names

MOST_SHOWN = 20  # lines


def choose_to_stop(runs: Runs, wanted: str | None, place: str) -> RunId:
    """Give the run that is to be stopped; an error shows those that live."""
    try:
        return choose_live_run(runs, wanted, myself())
    except UsageError as error:
        live = {run: parts for run, parts in runs.items() if is_live(parts)} if wanted is None else {}
        lines = [line for run, parts in live.items() for line in describe_run(run, parts, place)]
        error.evidence = "\n".join(lines[:MOST_SHOWN])
        raise


def confirm_stop(run: str, parts: Parts, *, named: bool, place: str, command: str) -> None:
    """Never end a run by accident: one that nobody has named, somebody else's, or one of which nothing is known."""
    me = myself()
    if not parts:
        _confirm(f"no node remembers {run}, so its owner is unknown", f"{command} stop {run} -y")
    elif is_live(parts) and not owner_of(parts).is_same(me):
        same = owner_of(parts).name == me.name
        who = ", not by you: it was another machine or state directory" if same else ""
        _confirm(f"{run} was {describe_launch(parts)}{who}", f"{command} stop {run} -y")
    elif not named:
        confirm(describe_run(run, parts, place), "Stop it?", "run", f"{command} stop {run}")


def _confirm(why: str, command: str) -> None:
    if sys.stdin.isatty() and click.confirm(sanitize(f"{why}. Stop it?"), err=True):
        return
    raise UsageError(why, code="CC-USE-025", fix=f"{command}  (stops it all the same)")


def stop_run(
    cluster: Cluster,
    nodes: Sequence[Node],
    silent: Sequence[str],
    pythons: Mapping[str, tasks.Interpreter],
    run: str,
    grace: float | None,
    *,
    lived: bool = False,
    ended: Collection[str] = (),
) -> int:
    """Stop on all nodes at once; 0 when nothing is left, 4 when a node was not reached, 5 when something is left.

    `lived`: some part of the run did; `ended` are the nodes on which it was over before.
    """
    codes = {4} if silent else set()
    missed = list(silent)
    strange: list[NodeError] = []
    found = False
    reason = f"{STOPPED_BY}{myself().name}"

    for outcome in cluster.each(
        nodes,
        lambda c, node: tasks.stop(
            c, node, pythons[node.name], run, grace, reason, lived=node.name not in ended
        ),
    ):
        if outcome.value is not None and outcome.value.elsewhere:
            strange.append(_lives_elsewhere(outcome.node.name, outcome.value.elsewhere))
            missed.append(outcome.node.name)
            codes.add(5)
        elif outcome.value is not None:
            codes |= {5} if outcome.value.left else set()
            found = found or bool(outcome.value.ended or outcome.value.left)
            ended_so = outcome.value.state is not None and outcome.value.state.reason == reason
            found = found or (lived and ended_so)  # between two attempts there is no process to end
            if outcome.value.known:
                click.echo(render_stopped(outcome.node.name, outcome.value))
        elif outcome.error is not None:
            tell_failures([outcome.error])
            missed.append(outcome.node.name)
            codes.add(4 if outcome.error.exit_code == 4 else 5)
    tell_failures(strange)
    name = sanitize(run)
    stopped = "stopped" if found else "nothing of it was left to stop"
    click.echo(f"{name}: not stopped on {fold_names(missed)}" if missed else f"{name}: {stopped}")
    return min(codes, default=0)


def _lives_elsewhere(node: str, account: str) -> NodeError:
    text = f"the run lives under the account {account}, and nothing of it was touched"
    fix = f"stop it as {account}: with `user: {account}` in an inventory, or let its owner do that"
    return NodeError(text, code="CC-RUN-018", node=node, fix=fix)


def render_stopped(name: str, stopped: tasks.Stopped) -> str:
    """Say what was ended on a node: `gpu01: ended torchrun (pid 12), python3 (pid 14)`."""
    removed = "" if stopped.state else " (its run directory was removed)"
    said = f"ended {', '.join(stopped.ended)}{removed}" if stopped.ended else "nothing was running"
    left = f"; COULD NOT END {', '.join(stopped.left)}" if stopped.left else ""
    held = stopped.state.gpu_memory if stopped.state else ()
    lines = [f"{name}: {said}{left}", *(f"{name}: still in use, {entry}" for entry in held)]
    return "\n".join(map(sanitize, lines))
