"""`init`: choose the machines, read their NICs and GPUs, write the two files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from clusterctl.cli.actions.inventory import (
    ConnectOptions,
    DiscoveryAnswers,
    probe_hosts,
    read_hosts,
    read_imported_file,
    refuse_existing,
    with_config,
    with_connect_options,
    write_new_file,
)
from clusterctl.cli.actions.push_keys import MAX_PROMPT_ROUNDS, confirm_host_keys
from clusterctl.cli.context.load import choice_before_local_file
from clusterctl.cli.context.nodes import hint_next, notice, report_failures
from clusterctl.console.terminal import hint, info
from clusterctl.console.text import sanitize
from clusterctl.errors import UsageError
from clusterctl.specs.importers.imported import Imported
from clusterctl.specs.inventory.render import describe_groups, render_inventory
from clusterctl.specs.job.render import JobDraft, choose_job_name, render_job
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line
from clusterctl.translation import tr, trn

UNKNOWN_HOST = "CC-SSH-009"
LOGIN_REFUSED_CODES = (UNKNOWN_HOST, "CC-SSH-007")  # what `keys push` fixes
MOST_SHOWN = 20


@dataclass(frozen=True)
class InitOptions:
    """The options of `init`."""

    hosts: Sequence[str]
    source: str | None
    from_ssh_config: str | None
    script: str | None
    name: str
    force: bool


class InitCommand:
    """One `init`."""

    def __init__(self, folder: Path, options: InitOptions, connect_options: ConnectOptions) -> None:
        self._folder, self._options, self._connect_options = folder, options, connect_options
        self._interactive = sys.stdin.isatty() and sys.stderr.isatty()
        self._name = choose_job_name(options.name, folder.resolve().name.lower())

    def run(self) -> int:
        """Ask for what is missing, write the files, and name the next command."""
        inventory, job = self._folder / "inventory.yaml", self._folder / "job.yaml"
        if not self._folder.is_dir():
            raise UsageError("CC-USE-070", folder=self._folder)
        if not self._options.force:
            refuse_existing(str(inventory))
            refuse_existing(str(job))
        imported = self._find_hosts()
        answers = self._probe_hosts(imported)
        report_failures(answers.failures.values())
        if not answers.facts:
            return self._write_without_answers(imported, answers, inventory)
        script = self._choose_script()
        gpus = all(facts.gpus.devices for facts in answers.facts.values())
        template = JobDraft(self._name, script, gpus, (self._folder / script).is_file())
        write_new_file(answers.text, str(inventory), force=self._options.force)
        write_new_file(render_job(template), str(job), force=self._options.force)
        info(
            trn(
                "wrote {inventory} ({n} node) and {job}",
                "wrote {inventory} ({n} nodes) and {job}",
                len(answers.facts),
                inventory=inventory,
                job=job,
            )
        )
        self._show_next_steps(answers, inventory)
        return answers.exit_code

    # the machines

    def _find_hosts(self) -> Imported:
        options = self._options
        sources = [bool(options.hosts), options.source is not None, options.from_ssh_config is not None]
        if sum(sources) > 1:
            raise UsageError("CC-USE-071")
        if options.source is not None:
            return self._read_file(options.source)
        if options.from_ssh_config is not None:
            return read_hosts(self._matching_hosts(options.from_ssh_config), self._connect_options)
        return read_hosts(options.hosts, self._connect_options) if options.hosts else self._prompt_for_hosts()

    def _read_file(self, path: str) -> Imported:
        from clusterctl.specs.importers.detect import parse_imported

        imported = parse_imported(read_imported_file(path), path)
        if imported.groups:
            notice(describe_groups(imported))
        return with_connect_options(with_config(imported, path), self._connect_options)

    def _matching_hosts(self, pattern: str) -> list[str]:
        hosts = [host for host in self._known_hosts() if fnmatchcase(host, pattern)]
        if not hosts:
            known = ", ".join(self._known_hosts()[:MOST_SHOWN]) or tr("none")
            raise UsageError("CC-USE-072", pattern=pattern, known=known)
        return hosts

    def _known_hosts(self) -> list[str]:
        from clusterctl.client.ssh.config import list_hosts, passwd_home

        return list_hosts(
            Path(self._connect_options.config or passwd_home() / ".ssh" / "config").expanduser()
        )

    def _prompt_for_hosts(self) -> Imported:
        if not self._interactive:
            raise UsageError("CC-USE-073")
        known = self._known_hosts()
        if known:
            hosts, more = ", ".join(known[:MOST_SHOWN]), len(known) - MOST_SHOWN
            line = (
                trn(
                    "hosts in your SSH configuration: {hosts} and {n} more",
                    "hosts in your SSH configuration: {hosts} and {n} more",
                    more,
                    hosts=hosts,
                )
                if more > 0
                else tr("hosts in your SSH configuration: {hosts}", hosts=hosts)
            )
            click.echo(sanitize(line), err=True)
        text = click.prompt(
            tr("Machines (names, addresses, user@host:port, gpu[01-04]; or a file that lists them)"), err=True
        )
        return (
            self._read_file(text)
            if Path(text).expanduser().is_file()
            else read_hosts(text.split(), self._connect_options)
        )

    # what is on the machines

    def _probe_hosts(self, imported: Imported) -> DiscoveryAnswers:
        """Read all machines, and again after the user trusts new host keys or names the Python with torch."""
        from clusterctl.client.ssh.key_install import HostKeyPrompts

        prompts = HostKeyPrompts(notice)
        answers = probe_hosts(imported, self._name, prompts, made_by="init")
        for _ in range(MAX_PROMPT_ROUNDS):
            if not confirm_host_keys(prompts, accept_new=False, interactive=self._interactive):
                break
            answers = probe_hosts(imported, self._name, prompts, made_by="init")
        nodes_without_torch = _without_torch(answers)
        if nodes_without_torch and self._interactive and self._connect_options.python is None:
            question = tr(
                "python3 on {nodes} has no torch. Path of the Python that has it (empty: later)",
                nodes=nodes_without_torch,
            )
            python = click.prompt(question, default="", show_default=False, err=True).strip()
            if python:
                answers = probe_hosts(
                    _with_defaults(imported, python=python), self._name, prompts, made_by="init"
                )
        return answers

    def _choose_script(self) -> str:
        if self._options.script is not None:
            return self._options.script
        scripts = sorted(path.name for path in self._folder.glob("*.py"))
        guess = next(
            (name for name in ("train.py", "main.py") if name in scripts),
            scripts[0] if scripts else "train.py",
        )
        if self._interactive:
            return str(click.prompt(tr("Training script"), default=guess, err=True))
        return guess

    # what is next

    def _write_without_answers(self, imported: Imported, answers: DiscoveryAnswers, inventory: Path) -> int:
        """Write what `keys push` needs if keys are all that is missing; else nothing."""
        if all(error.code in LOGIN_REFUSED_CODES for error in answers.failures.values()):
            text = render_inventory(imported, self._name, made_by="init")
            write_new_file(text, str(inventory), force=self._options.force)
            info(
                tr(
                    "wrote {inventory} without NICs and GPUs, because no machine accepted a login",
                    inventory=inventory,
                )
            )
            push = f"{self._cd_prefix}{self._command} keys push"
            hint(tr("next: {command}; then repeat this command with --force", command=push))
        else:
            info(tr("nothing was written: no machine could be read"))
        return answers.exit_code

    def _show_next_steps(self, answers: DiscoveryAnswers, inventory: Path) -> None:
        refused = [name for name, error in answers.failures.items() if error.code in LOGIN_REFUSED_CODES]
        if refused:
            push = f"{self._cd_prefix}{self._command} keys push"
            info(
                tr(
                    "{nodes}: remove the # in {inventory}, then: {command}",
                    nodes=fold_names(refused),
                    inventory=inventory,
                    command=push,
                )
            )
        nodes_without_torch = _without_torch(answers)
        if nodes_without_torch:
            info(
                tr(
                    "{nodes}: no torch in python3; set `python:` in {inventory}, or install torch there",
                    nodes=nodes_without_torch,
                    inventory=inventory,
                )
            )
        command = self._command
        hint_next(f"{self._cd_prefix}{command} check job.yaml", f"{command} launch job.yaml")

    @property
    def _command(self) -> str:
        """The beginning of a command that uses the new inventory, also while a lab is running."""
        return "clusterctl -i inventory.yaml" if choice_before_local_file() else "clusterctl"

    @property
    def _cd_prefix(self) -> str:
        return "" if self._folder == Path() else f"{command_line('cd', str(self._folder))}; "


def _with_defaults(imported: Imported, **values: Any) -> Imported:
    hosts = tuple(
        replace(host, **{key: value for key, value in values.items() if getattr(host, key) is None})
        for host in imported.hosts
    )
    return replace(imported, hosts=hosts)


def _without_torch(answers: DiscoveryAnswers) -> str:
    return fold_names(name for name, facts in answers.facts.items() if not facts.torch.version)
