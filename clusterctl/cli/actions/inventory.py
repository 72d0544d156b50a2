"""An inventory that is imported, discovered, or written by `init` together with a job."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from clusterctl.cli.actions.push_keys import MAX_PROMPT_ROUNDS, confirm_host_keys
from clusterctl.cli.context.load import choice_before_local_file, expand, lab_dir, read_spec
from clusterctl.cli.context.nodes import (
    hint_next,
    interpreter,
    notice,
    open_cluster,
    reading_exit_code,
    report_failures,
)
from clusterctl.cli.options import prompt
from clusterctl.client.rpc import tasks
from clusterctl.client.ssh.host_keys import HostKeys
from clusterctl.console.terminal import hint, info
from clusterctl.console.text import sanitize
from clusterctl.errors import ClusterctlError, UsageError
from clusterctl.plans.discover import plan_discovery
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.facts.untrusted import clean_text
from clusterctl.plans.launch.script import LARGEST_SCRIPT, ScriptLaunch, parse_file, plan_script
from clusterctl.specs.importers.hostfile import parse_hostfile
from clusterctl.specs.importers.imported import Imported
from clusterctl.specs.inventory.model import Inventory
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.inventory.render import describe_groups, render_discovered, render_inventory
from clusterctl.specs.job.render import JobDraft, choose_job_name, render_job
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line
from clusterctl.translation import to_translate, tr, trn

STANDARD_INPUT = "-"


def read_imported_file(path: str) -> str:
    """Read the file, or standard input for `-`, as far as an inventory can be long."""
    from clusterctl.specs.importers.imported import MOST_CHARACTERS

    if path != STANDARD_INPUT:
        return read_spec(expand(path), MOST_CHARACTERS)
    from clusterctl.specs.yaml.reader import decode_source

    return decode_source(
        sys.stdin.buffer.read(MOST_CHARACTERS + 1), tr("standard input"), max_bytes=MOST_CHARACTERS
    )


def find_unread(path: str) -> list[str]:
    """Name the directories beside an Ansible inventory in which variables may stand."""
    folder = expand(path).parent
    return [
        name for name in ("group_vars", "host_vars") if path != STANDARD_INPUT and (folder / name).is_dir()
    ]


def with_config(imported: Imported, path: str) -> Imported:
    """Have the nodes of an SSH configuration connect by that file, unless ssh reads it anyway."""
    from clusterctl.specs.importers.ssh_config import DESCRIPTION

    usual = Path("~/.ssh/config").expanduser()
    if (
        imported.format_description != DESCRIPTION
        or path == STANDARD_INPUT
        or expand(path).resolve() == usual.resolve()
    ):
        return imported
    config = str(expand(path).absolute())
    return replace(imported, hosts=tuple(replace(host, config=config) for host in imported.hosts))


def refuse_existing(path: str) -> None:
    """Say at once that a file is there, before anything else is done for it."""
    if expand(path).exists():
        raise UsageError("CC-USE-040", path=path)


def write_new_file(text: str, path: str, *, force: bool) -> None:
    """Write what a verb has made; an existing file is replaced only with `force`, and then atomically."""
    target = expand(path)
    if target.is_dir():
        raise UsageError("CC-USE-040", "directory", path=path)
    if not force:
        try:
            _write_new(target, text)
        except FileExistsError as error:
            raise UsageError("CC-USE-040", path=path) from error
        return
    temporary = target.with_name(f".{target.name}.new")
    temporary.unlink(missing_ok=True)
    _write_new(temporary, text)
    Path.replace(temporary, target)


def _write_new(file: Path, text: str) -> None:
    """Write a file that is not there yet; nothing is left of it if the disk refuses."""
    try:
        with file.open("x", encoding="utf-8") as sink:
            sink.write(text)
    except OSError as error:
        if error.filename is None:  # it was opened, and then refused
            file.unlink()
            error.filename = str(file)
        raise


COMMAND_LINE = to_translate("the command line")
DEFAULT_NAME = "cluster"


@dataclass(frozen=True)
class ConnectOptions:
    """How to log in, for hosts that do not specify it themselves."""

    user: str | None = None
    port: int | None = None
    key: str | None = None
    jump: str | None = None
    config: str | None = None
    host_keys: str | None = None
    python: str | None = None


@dataclass(frozen=True)
class DiscoveryAnswers:
    """What was found: the text of the inventory, and the facts or the error of each node."""

    text: str
    facts: Mapping[str, Facts]
    failures: Mapping[str, ClusterctlError]

    @property
    def exit_code(self) -> int:
        """0: all answered, 5: some, 4: none."""
        return reading_exit_code(len(self.facts), len(self.facts) + len(self.failures))


def discover(
    hosts: Sequence[str], connect_options: ConnectOptions, cluster: str, output: str | None, *, force: bool
) -> int:
    """Read all hosts at once and write the inventory; 0 all answered, 5 some, 4 none."""
    if output is not None and not force:
        refuse_existing(output)
    answers = probe_hosts(read_hosts(hosts, connect_options), cluster)
    report_failures(answers.failures.values())
    if not answers.facts:
        info(tr("nothing was written: no machine could be read"))
    elif output is None:
        click.echo(answers.text, nl=False)
    else:
        write_new_file(answers.text, output, force=force)
        check = command_line("clusterctl", "-i", output, "check")
        info(trn("wrote {path} ({n} node)", "wrote {path} ({n} nodes)", len(answers.facts), path=output))
        hint_next(check)
    return answers.exit_code


def with_lab(connect_options: ConnectOptions, lab_name: str | None) -> ConnectOptions:
    """Use the connection options of a running lab, where the command line has none."""
    if lab_name is None:
        return connect_options
    from clusterctl.lab.labs import load

    lab = load(lab_dir(), lab_name)
    config = connect_options.config or str(lab.ssh_config)
    return replace(connect_options, config=config, python=connect_options.python or lab.plan.python)


def probe_hosts(
    imported: Imported,
    cluster: str,
    hostkeys: HostKeys | None = None,
    *,
    made_by: str = "inventory discover",
) -> DiscoveryAnswers:
    """Ask machines of which only the ways to them are known; `hostkeys` judges in place of the usual ones."""
    bare = parse_inventory(render_inventory(imported, cluster or DEFAULT_NAME), tr(COMMAND_LINE))
    facts, failures = _probe_nodes(bare, hostkeys)
    reasons = {name: clean_text(f"{error.code} {error.message}") for name, error in failures.items()}
    discovery = plan_discovery(bare.nodes, facts, reasons)
    text = render_discovered(
        imported, cluster or DEFAULT_NAME, discovery.nodes, discovery.advice, made_by=made_by
    )
    return DiscoveryAnswers(text, facts, failures)


def read_hosts(hosts: Sequence[str], connect_options: ConnectOptions) -> Imported:
    """Read hosts as they are typed: names, addresses, user@host:port, ranges."""
    return with_connect_options(parse_hostfile("\n".join(hosts), tr(COMMAND_LINE), "hosts"), connect_options)


def with_connect_options(imported: Imported, connect_options: ConnectOptions) -> Imported:
    """Add the connection options to hosts that do not specify them themselves."""
    given = {key: value for key, value in vars(connect_options).items() if value is not None}
    completed = (
        replace(host, **{key: value for key, value in given.items() if getattr(host, key) is None})
        for host in imported.hosts
    )
    return replace(imported, hosts=tuple(completed))


def _probe_nodes(
    bare: Inventory, hostkeys: HostKeys | None
) -> tuple[dict[str, Facts], dict[str, ClusterctlError]]:
    facts: dict[str, Facts] = {}
    failures: dict[str, ClusterctlError] = {}
    nodes = bare.nodes
    with open_cluster(hostkeys) as cluster:
        for outcome in cluster.each(nodes, lambda c, node: tasks.probe(c, node, interpreter(node), nodes)):
            if outcome.value is not None:
                facts[outcome.node.name] = outcome.value
            elif outcome.error is not None:
                failures[outcome.node.name] = outcome.error
    return facts, failures


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
        found = self._read_script(script)
        template = JobDraft(
            self._name,
            script,
            gpus,
            (self._folder / script).is_file(),
            found.launcher,
            found.args,
            found.nproc_per_node,
        )
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
        text = prompt(tr("Machines (names, user@host:port, gpu[01-04], or a file that lists them)"))
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
            python = prompt(question, default="", show_default=False).strip()
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
            return str(prompt(tr("Training script"), default=guess))
        return guess

    def _read_script(self, script: str) -> ScriptLaunch:
        """Read from the script how it is launched; one that cannot be read is launched as usual."""
        source, path = b"", self._folder / script
        with suppress(OSError, ValueError):
            if path.is_file() and path.stat().st_size <= LARGEST_SCRIPT:
                source = path.read_bytes()
        return plan_script(parse_file(script, source).use)

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
