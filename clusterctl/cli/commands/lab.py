"""The verb `lab`: a practice cluster on this machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clusterctl.cli.context.load import LOCAL_FILE, choose_inventory, lab_dir
from clusterctl.cli.context.nodes import hint_next
from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import RawArgumentsCommand, VerbCommand, VerbGroup
from clusterctl.cli.options import WholeNumber, confirm, json_option, refuse_mixed, shared_options
from clusterctl.console.documents.output import write_document
from clusterctl.console.terminal import info
from clusterctl.errors import LabError, UsageError
from clusterctl.interrupts import INTERRUPTS, announce_interrupted
from clusterctl.lab import build, labs
from clusterctl.lab.labs import Lab, LabNodeState
from clusterctl.lab.layout import SLURM_INVENTORY
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line, render_duration
from clusterctl.translation import to_translate, tr, trn

if TYPE_CHECKING:
    from clusterctl.console.documents.nodes import LabEntry, LabNode, LabsDocument

REMOVE_LIMIT = 30.0  # seconds to end and remove what was half built
NIC_STATES = {"up": to_translate("up"), "down": to_translate("down")}
_name_option = click.option(
    "--name", "--lab", "name", default=None, metavar="NAME", help="The lab, if several are running."
)


@click.group(cls=VerbGroup)
@shared_options
def lab(settings: Settings) -> None:
    """Practice cluster on this machine: nodes with their own address, NIC, home and sshd."""


@lab.command(
    cls=VerbCommand,
    context_settings={"allow_extra_args": True},
    examples=[
        ("clusterctl lab up", "3 nodes"),
        ("clusterctl lab up -n 8 --gpus 4", "8 nodes, 4 simulated GPUs each"),
        ("clusterctl lab up --name b --nics eth0,ib0", "a second lab"),
    ],
)
@click.option(
    "-n",
    "--nodes",
    "count",
    type=WholeNumber(to_translate("{value!r} is not a number of nodes"), 1),
    default=3,
    show_default=True,
    metavar="N",
    help="Number of nodes.",
)
@click.option(
    "--name", default="lab", show_default=True, metavar="NAME", help="Name of the lab; several may run."
)
@click.option(
    "--nics",
    default=None,
    show_default="enp65s0f0,ib0np0,eno2",
    metavar="A,B,...",
    help="NIC names, assigned to the nodes in turn. A+B gives a node two NICs: SSH on A, training on B; "
    "A+B+C trains on B and C.",
)
@click.option(
    "--gpus",
    type=WholeNumber(to_translate("{value!r} is not a number of GPUs")),
    default=0,
    show_default=True,
    metavar="K",
    help="Simulated GPUs per node, for check, top and locks; they compute nothing.",
)
@click.option("--shared-home", is_flag=True, help="One home directory for all nodes, as on NFS.")
@click.option(
    "--slurm", is_flag=True, help="Run a real Slurm on the nodes, with one home for all; needs slurm-wlm."
)
@click.option(
    "--backend",
    type=click.Choice(["auto", "netns", "inproc"]),
    default="auto",
    show_default=True,
    help="netns: namespaces with sshd. inproc: plain processes at loopback addresses, if namespaces are not available.",
)
@json_option("Write the lab as JSON.")
def up(
    count: int,
    name: str,
    nics: str | None,
    gpus: int,
    shared_home: bool,
    slurm: bool,
    backend: str,
    as_json: bool,
) -> None:
    """Start a lab; it runs until `lab down`."""
    _refuse_extra_argument("up")
    source = click.get_current_context().get_parameter_source("name")
    typed_name = name if source is click.core.ParameterSource.COMMANDLINE else None
    nic_names = None if nics is None else [item.strip() for item in nics.split(",")]
    options = build.LabOptions(
        name=_name(typed_name) or name,
        count=count,
        nics=nic_names,
        shared_home=shared_home,
        gpus=gpus,
        backend=backend,
        slurm=slurm,
    )
    try:
        with INTERRUPTS.leaving(announce_interrupted, REMOVE_LIMIT):
            new_lab = build.up(lab_dir(), options, on_fallback=info)
    except KeyboardInterrupt:
        info(_describe_interrupted(lab_dir(), [options.name]))
        raise
    if as_json:
        write_document(_as_document(new_lab.name))
        return
    info(
        trn(
            "lab {name} is up: {n} node; inventory:",
            "lab {name} is up: {n} nodes; inventory:",
            count,
            name=new_lab.name,
        )
    )
    if not sys.stdout.isatty():  # what a program takes, people read here
        info(str(new_lab.inventory))
    click.echo(str(new_lab.inventory))
    _hint_after_up(new_lab)


def _hint_after_up(new_lab: Lab) -> None:
    """Name the command that a new lab is for; where it is not the one that commands choose, with its name."""
    is_default = labs.default_lab(labs.list_running(lab_dir())) == new_lab and not LOCAL_FILE.exists()
    command = "clusterctl" if is_default else command_line("clusterctl", "--lab", new_lab.name)
    hint_next(f"{command} check", f"{command} launch JOB.yaml")
    if new_lab.plan.slurmd:
        inventory = str(new_lab.directory / SLURM_INVENTORY)
        info(
            tr("Slurm: {command}", command=command_line("clusterctl", "-i", inventory, "launch", "JOB.yaml"))
        )


def _name(given: str | None) -> str | None:
    """Take --name, or the global --lab, or the lab whose inventory the global -i names."""
    settings = click.get_current_context().find_object(Settings)
    if given is not None or settings is None:
        return given
    if settings.inventory is None:
        return settings.lab
    folder = choose_inventory(settings).path.absolute().parent
    return folder.name if folder.parent == lab_dir() else None


@lab.command(
    cls=VerbCommand,
    context_settings={"allow_extra_args": True},
    examples=[
        ("clusterctl lab down", "the running lab"),
        ("clusterctl lab down --name b", "one of several"),
        ("clusterctl lab down --all", "all labs"),
    ],
)
@_name_option
@click.option("--all", "everything", is_flag=True, help="Stop all labs.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation, even if no lab is named.")
@json_option("Write which labs have ended as JSON.")
def down(name: str | None, everything: bool, yes: bool, as_json: bool) -> None:
    """Stop a lab and everything in it; asks first if no lab is named."""
    _refuse_extra_argument("down")
    labs_dir = lab_dir()
    named = _name(name)
    if everything and named is not None:
        raise click.UsageError(
            tr("--all stops all labs, --name one lab: use only one of them"), click.get_current_context()
        )
    if named is not None and not labs.exists(labs_dir, named):
        raise _no_such_lab(named, [running.name for running in labs.list_running(labs_dir)])
    names = [running.name for running in labs.list_running(labs_dir)] if everything else [named or ""]
    if not everything and named is None:
        names = [_choose_to_stop(labs_dir, ask=not yes)]
    try:
        with INTERRUPTS.leaving(announce_interrupted, REMOVE_LIMIT):
            ended = labs.down(labs_dir, None if everything else names)
    except KeyboardInterrupt:
        info(_describe_interrupted(labs_dir, names))
        raise
    if as_json:
        write_document({"schema": 1, "ended": list(ended)})
        return
    for lab_name in ended:
        info(tr("lab {name} is down", name=lab_name))
    if not ended and named is not None:
        info(tr("lab {name} was not running; its files were removed", name=named))
    elif not ended:
        info(tr("no lab is running"))


def _choose_to_stop(labs_dir: Path, *, ask: bool) -> str:
    """Choose the only lab, after a question; where none is running, the one whose files may be left."""
    if not labs.list_running(labs_dir):
        return labs.DEFAULT_NAME
    chosen = labs.load(labs_dir)
    if ask:
        _confirm_down(chosen)
    return chosen.name


def _refuse_extra_argument(verb: str) -> None:
    """Show the option that an argument was meant for: a number of nodes or the name of a lab."""
    words = click.get_current_context().args
    if words:
        option = "--nodes" if verb == "up" and words[0].isdecimal() else "--name"
        command = command_line("lab", verb, option, words[0], command="clusterctl")
        raise UsageError("CC-USE-092", "option", words=" ".join(words), command=command)


def _no_such_lab(name: str, running: Sequence[str]) -> LabError:
    """Name the labs that `down` can end; one that is to end need not be started first."""
    case = "no-such" if running else "none"
    return LabError("CC-LAB-005", case, name=name, running=", ".join(running))


def _describe_interrupted(labs_dir: Path, names: Sequence[str]) -> str:
    """Return what an interrupted `up` or `down` has left of each lab, and the command that removes it."""
    running = {entry.name for entry in labs.list_running(labs_dir)}
    lines = []
    for name in names:
        command = command_line("lab", "down", "--name", name, command="clusterctl")
        if name in running:
            lines.append(tr("lab {name} is running; to stop it: {command}", name=name, command=command))
        elif labs.exists(labs_dir, name):
            lines.append(
                tr("lab {name} is not running; to remove its files: {command}", name=name, command=command)
            )
        else:
            lines.append(tr("lab {name} is not running and has left no files", name=name))
    return "\n".join(lines)


def _confirm_down(chosen: Lab) -> None:
    """Ask before stopping a lab that was not named."""
    origin = chosen.origin
    nodes = fold_names([node.name for node in chosen.nodes])
    duration = render_duration(time.time() - origin.since)
    facts = {"name": chosen.name, "nodes": nodes, "duration": duration, "directory": origin.directory}
    lines = [
        tr("lab {name}: {nodes}, up for {duration}, started in {directory}", **facts)
        if origin.directory
        else tr("lab {name}: {nodes}, up for {duration}", **facts),
        tr("inventory: {path}", path=chosen.inventory),
    ]
    confirm(
        lines,
        tr("Stop it and everything that runs there?"),
        "lab",
        command_line("lab", "down", "--name", chosen.name, command="clusterctl"),
    )


@lab.command(cls=VerbCommand)
@json_option("Write JSON.")
def status(as_json: bool) -> None:
    """Show the running labs and their nodes."""
    statuses = labs.status(lab_dir())
    if as_json:
        write_document(_as_document())
        return
    if not statuses:
        info(tr("no lab is running"))
    for entry, states in statuses:
        inproc = tr("(inproc: without namespaces)") if entry.plan.backend == "inproc" else ""
        click.echo(f"{entry.name}  {entry.inventory}  {inproc}".rstrip())
        for state in states:
            click.echo("  " + _render_node(entry, state))


def _as_document(name: str | None = None) -> LabsDocument:
    """Return the running labs, or one of them."""
    statuses = [entry for entry in labs.status(lab_dir()) if name in (None, entry[0].name)]
    return {"schema": 1, "labs": [_as_entry(*entry) for entry in statuses]}


def _as_entry(entry: Lab, states: tuple[LabNodeState, ...]) -> LabEntry:
    nodes: list[LabNode] = [
        {
            "name": state.name,
            "host": entry.find_node(state.name).plan.host,
            "ip": entry.find_node(state.name).plan.ip,
            "power": "on" if state.is_on else "off",
            "sshd": "on" if state.sshd else "off",
            "nics": state.nics,
        }
        for state in states
    ]
    return {
        "name": entry.name,
        "backend": entry.plan.backend,
        "inventory": str(entry.inventory),
        "nodes": nodes,
    }


def _render_node(entry: Lab, state: LabNodeState) -> str:
    plan = entry.find_node(state.name).plan
    if not state.is_on:
        return f"{state.name}  {plan.ip:<13}  {tr('powered off')}"
    nics = tr(", ").join(f"{nic} {tr(NIC_STATES.get(link, link))}" for nic, link in state.nics.items())
    text = tr("{nics}; sshd on", nics=nics) if state.sshd else tr("{nics}; sshd off", nics=nics)
    return f"{state.name}  {plan.ip:<13}  {text}"


@lab.command(
    cls=RawArgumentsCommand,
    context_settings={"ignore_unknown_options": True},
    examples=[
        ("clusterctl lab ssh gpu01", "a shell"),
        ("clusterctl lab ssh gpu01 -- ip addr", "a command"),
    ],
)
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@_name_option
def ssh(node: str, command: tuple[str, ...], name: str | None) -> None:
    """Open a shell on a node, or run a command there (after --)."""
    refuse_mixed(command, "lab ssh")
    argv = labs.load(lab_dir(), _name(name)).ssh_command(node, command)
    os.execvp(argv[0], argv)


@lab.command(
    "break",
    cls=VerbCommand,
    examples=[
        ("clusterctl lab break gpu02 power", "during a run: what does launch report?"),
        ("clusterctl lab heal gpu02", "undo it"),
    ],
)
@click.argument("node")
@click.argument("how", metavar="HOW", type=click.Choice(["power", "nic-down", "sshd"]))
@_name_option
@json_option("Write the lab as JSON.")
def break_(node: str, how: str, name: str | None, as_json: bool) -> None:
    """Break a node: cut its power, its training NIC or its sshd.

    HOW is power, nic-down or sshd.
    """
    running = labs.load(lab_dir(), _name(name))
    _show_node(running, labs.break_node(running, node, how), as_json=as_json)


def _show_node(running: Lab, state: LabNodeState, *, as_json: bool) -> None:
    if as_json:
        write_document(_as_document(running.name))
    else:
        click.echo(_render_node(running, state))


@lab.command(cls=VerbCommand)
@click.argument("node")
@_name_option
@json_option("Write the lab as JSON.")
def heal(node: str, name: str | None, as_json: bool) -> None:
    """Undo every break of a node."""
    running = labs.load(lab_dir(), _name(name))
    _show_node(running, labs.heal_node(running, node), as_json=as_json)
