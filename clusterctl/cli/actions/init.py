"""`init`: who the machines are, what they say, and the two files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from clusterctl.cli.actions.inventory import (
    Answers,
    Way,
    ask_hosts,
    by_way,
    read_foreign,
    read_hosts,
    refuse_existing,
    with_config,
    write_inventory,
)
from clusterctl.cli.actions.push_keys import MOST_MEETINGS, introduce
from clusterctl.cli.context.nodes import notice, tell_failures
from clusterctl.console.terminal import say
from clusterctl.console.text import sanitize
from clusterctl.errors import UsageError
from clusterctl.specs.importers.imported import Foreign
from clusterctl.specs.inventory.render import describe_groups, render_inventory
from clusterctl.specs.job.render import Beginning, job_name, render_job
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line, counted

UNKNOWN_HOST = "CC-SSH-009"
NOT_INSIDE = (UNKNOWN_HOST, "CC-SSH-007")  # what `keys push` mends
MOST_SHOWN = 20


@dataclass(frozen=True)
class Wishes:
    """What the command line asks for."""

    hosts: Sequence[str]
    source: str | None
    from_ssh_config: str | None
    script: str | None
    name: str
    force: bool


class Begin:
    """One `init`."""

    def __init__(self, folder: Path, wishes: Wishes, way: Way) -> None:
        self._folder, self._wishes, self._way = folder, wishes, way
        self._attended = sys.stdin.isatty() and sys.stderr.isatty()
        self._name = job_name(wishes.name, folder.resolve().name.lower())

    def run(self) -> int:
        """Ask, write, and say what is next."""
        inventory, job = self._folder / "inventory.yaml", self._folder / "job.yaml"
        if not self._folder.is_dir():
            raise UsageError(f"{self._folder} is not a directory", code="CC-USE-070", fix="make it first")
        if not self._wishes.force:
            refuse_existing(str(inventory))
            refuse_existing(str(job))
        foreign = self._find_hosts()
        answers = self._ask(foreign)
        tell_failures(answers.failures.values())
        if not answers.facts:
            return self._begin_without_answers(foreign, answers, inventory)
        script = self._choose_script()
        gpus = all(facts.gpus.devices for facts in answers.facts.values())
        beginning = Beginning(self._name, script, gpus, (self._folder / script).is_file())
        write_inventory(answers.text, str(inventory), force=self._wishes.force)
        write_inventory(render_job(beginning), str(job), force=self._wishes.force)
        say(f"written: {inventory} ({counted(len(answers.facts), 'node')}), {job}")
        self._advise(answers, inventory)
        return answers.exit_code

    # the machines

    def _find_hosts(self) -> Foreign:
        wishes = self._wishes
        named = [bool(wishes.hosts), wishes.source is not None, wishes.from_ssh_config is not None]
        if sum(named) > 1:
            raise UsageError(
                "HOST, --from and --from-ssh-config all say which machines",
                code="CC-USE-071",
                fix="give one of them",
            )
        if wishes.source is not None:
            return self._read_file(wishes.source)
        if wishes.from_ssh_config is not None:
            return read_hosts(self._configured(wishes.from_ssh_config), self._way)
        return read_hosts(wishes.hosts, self._way) if wishes.hosts else self._ask_for_hosts()

    def _read_file(self, path: str) -> Foreign:
        from clusterctl.specs.importers.detect import parse_foreign

        foreign = parse_foreign(read_foreign(path), path)
        if foreign.groups:
            notice(describe_groups(foreign))
        return by_way(with_config(foreign, path), self._way)

    def _configured(self, pattern: str) -> list[str]:
        hosts = [host for host in self._known_hosts() if fnmatchcase(host, pattern)]
        if not hosts:
            known = ", ".join(self._known_hosts()[:MOST_SHOWN]) or "none"
            raise UsageError(
                f"no host of the SSH configuration fits {pattern!r}",
                code="CC-USE-072",
                fix=f"it names: {known}",
            )
        return hosts

    def _known_hosts(self) -> list[str]:
        from clusterctl.client.ssh.config import named_hosts, own_home

        return named_hosts(Path(self._way.config or own_home() / ".ssh" / "config").expanduser())

    def _ask_for_hosts(self) -> Foreign:
        if not self._attended:
            raise UsageError(
                "which machines?",
                code="CC-USE-073",
                fix="clusterctl init HOST..., or --from FILE, or --from-ssh-config 'PAT'",
            )
        known = self._known_hosts()
        if known:
            more = f" and {len(known) - MOST_SHOWN} more" if len(known) > MOST_SHOWN else ""
            click.echo(
                sanitize(f"your SSH configuration names: {', '.join(known[:MOST_SHOWN])}{more}"), err=True
            )
        text = click.prompt(
            "Machines (names, addresses, user@host:port, gpu[01-04]; or a file that lists them)", err=True
        )
        return (
            self._read_file(text)
            if Path(text).expanduser().is_file()
            else read_hosts(text.split(), self._way)
        )

    # what they say

    def _ask(self, foreign: Foreign) -> Answers:
        """Ask all, and again with what a person adds: that new host keys are to be believed, where torch is."""
        from clusterctl.client.ssh.key_install import Introductions

        introductions = Introductions(notice)
        answers = ask_hosts(foreign, self._name, introductions)
        for _ in range(MOST_MEETINGS):
            if not introduce(introductions, believe=False, attended=self._attended):
                break
            answers = ask_hosts(foreign, self._name, introductions)
        without = _without_torch(answers)
        if without and self._attended and self._way.python is None:
            question = f"python3 on {without} has no torch. Path of the Python that has it (empty: later)"
            python = click.prompt(question, default="", show_default=False, err=True).strip()
            if python:
                answers = ask_hosts(_with(foreign, python=python), self._name, introductions)
        return answers

    def _choose_script(self) -> str:
        if self._wishes.script is not None:
            return self._wishes.script
        found = sorted(path.name for path in self._folder.glob("*.py"))
        guess = next(
            (name for name in ("train.py", "main.py") if name in found), found[0] if found else "train.py"
        )
        if self._attended:
            return str(click.prompt("Training script", default=guess, err=True))
        return guess

    # what is next

    def _begin_without_answers(self, foreign: Foreign, answers: Answers, inventory: Path) -> int:
        """Write what `keys push` needs if keys are all that is missing; else nothing."""
        if all(error.code in NOT_INSIDE for error in answers.failures.values()):
            write_inventory(render_inventory(foreign, self._name), str(inventory), force=self._wishes.force)
            say(f"written: {inventory}, without NICs and GPUs, since no machine let us in")
            say(f"next: {self._at}clusterctl keys push; then clusterctl init --force as now")
        else:
            say("nothing was written: no machine answered")
        return answers.exit_code

    def _advise(self, answers: Answers, inventory: Path) -> None:
        shut = [name for name, error in answers.failures.items() if error.code in NOT_INSIDE]
        if shut:
            say(f"{fold_names(shut)}: take the # away in {inventory}, then: {self._at}clusterctl keys push")
        without = _without_torch(answers)
        if without:
            say(f"no torch in the Python of {without}: say `python:` in {inventory}, or install torch there")
        say(f"next: {self._at}clusterctl check job.yaml; clusterctl launch job.yaml")

    @property
    def _at(self) -> str:
        return "" if self._folder == Path() else f"{command_line('cd', str(self._folder))}; "


def _with(foreign: Foreign, **values: Any) -> Foreign:
    hosts = tuple(
        replace(host, **{key: value for key, value in values.items() if getattr(host, key) is None})
        for host in foreign.hosts
    )
    return replace(foreign, hosts=hosts)


def _without_torch(answers: Answers) -> str:
    return fold_names(name for name, facts in answers.facts.items() if not facts.torch.version)
