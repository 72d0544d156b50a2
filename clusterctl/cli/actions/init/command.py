"""The verb `init`: from machines to an inventory and a job, then to a check and a launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clusterctl.cli.actions.init.login import NO_KEY, UNKNOWN_HOST, Login, Prompts
from clusterctl.cli.actions.init.machines import (
    ConnectOptions,
    HostSource,
    Machines,
    name_by_hostname,
    render_machines,
)
from clusterctl.cli.actions.init.script import SetupDraft, draft_job, draft_setup
from clusterctl.cli.actions.init.write_files import (
    refuse_existing,
    show_file,
    write_new_file,
    write_new_files,
)
from clusterctl.cli.context.load import is_local_file_used
from clusterctl.cli.context.nodes import hint_next, notice, report_failures
from clusterctl.cli.context.settings import Settings
from clusterctl.cli.options import prompt
from clusterctl.console.documents.output import write_document
from clusterctl.console.terminal import hint, info
from clusterctl.errors import UsageError
from clusterctl.plans.discover import PythonChoice
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.render import choose_job_name, render_inventory, render_job
from clusterctl.specs.text import command_line
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.console.documents.nodes import InitDocument

LOGIN_REFUSED = (UNKNOWN_HOST, NO_KEY)  # what `init --keys` fixes


@dataclass(frozen=True)
class InitOptions:
    """The options of `init`; `yes` answers all questions but the one for new host keys."""

    source: HostSource
    script: str | None
    name: str
    force: bool
    yes: bool = False
    password_from: str | None = None
    as_json: bool = False


class InitCommand:
    """One `init`."""

    def __init__(
        self, folder: Path, options: InitOptions, connect_options: ConnectOptions, settings: Settings
    ) -> None:
        self._folder, self._options, self._connect_options = folder, options, connect_options
        self._settings = settings
        self._prompts = Prompts(options.yes, options.password_from)
        self._name = choose_job_name(options.name, folder.resolve().name.lower())

    @property
    def _inventory(self) -> Path:
        return self._folder / "inventory.yaml"

    @property
    def _job(self) -> Path:
        return self._folder / "job.yaml"

    def run(self) -> int:
        """Read the machines, write the files, then check and launch if the user agrees."""
        if not self._folder.is_dir():
            raise UsageError("CC-USE-070", folder=self._folder)
        if not self._options.force:
            refuse_existing(str(self._inventory), for_init=True)
            refuse_existing(str(self._job), for_init=True)
        imported = self._options.source.read(self._connect_options, interactive=self._prompts.interactive)
        code = self._folder if self._connect_options.python is None else None
        machines = Login(self._connect_options, self._name, code, self._prompts).read(imported)
        report_failures(machines.failures.values())
        if not machines.facts:
            return self._write_unread(machines)
        script = self._choose_script()
        files = self._write_files(name_by_hostname(machines), script)
        if self._options.as_json:
            write_document(_to_json(files, machines))
            return machines.exit_code
        self._show_refused(machines)
        if not (self._folder / script).is_file():
            self._hint_next()
            return machines.exit_code
        return self._check_and_launch(machines.exit_code)

    # the files

    def _choose_script(self) -> str:
        if self._options.script is not None:
            return self._options.script
        scripts = sorted(path.name for path in self._folder.glob("*.py"))
        usual = (name for name in ("train.py", "main.py") if name in scripts)
        guess = next(usual, scripts[0] if scripts else "train.py")
        if self._prompts.interactive and not self._options.yes and len(scripts) != 1:
            return str(prompt(tr("Training script"), default=guess))
        return guess

    def _write_files(self, machines: Machines, script: str) -> list[Path]:
        """Show and write the inventory, the job, and what the job's `setup` needs."""
        pythons = machines.choose_pythons()
        setup = draft_setup(self._folder, script, pythons.torch) if pythons.without else SetupDraft()
        draft = draft_job(self._folder, script, self._name, has_gpus=machines.has_gpus, setup=setup)
        inventory = render_machines(machines, self._name, made_by="init", pythons=pythons)
        texts = {self._inventory: inventory, self._job: render_job(draft)}
        new_files = {self._folder / name: text for name, text in setup.new_files.items()}
        for path, text in {**texts, **new_files}.items() if self._prompts.interactive else ():
            show_file(path, text)
        self._explain_setup(pythons, machines)
        write_new_files({**texts, **new_files}, force=self._options.force)
        info(
            trn(
                "wrote {inventory} ({n} node) and {job}",
                "wrote {inventory} ({n} nodes) and {job}",
                len(machines.nodes) - len(machines.unreached),
                inventory=self._inventory,
                job=", ".join(str(path) for path in (self._job, *new_files)),
            )
        )
        if machines.unreached:  # the error may have left the screen
            names = fold_names(node.name for node in machines.unreached)
            notice(tr("{nodes}: not reached, so only a comment in {file}", nodes=names, file=self._inventory))
        if not (self._folder / script).is_file():
            notice(tr("{path} does not exist yet", path=self._folder / script))
        return [*texts, *new_files]

    def _explain_setup(self, pythons: PythonChoice, machines: Machines) -> None:
        if not pythons.without:
            return
        nodes = fold_names(pythons.without)
        torch = tr("torch {version}", version=pythons.torch) if pythons.torch else "torch"
        notice(
            tr(
                "{nodes}: no Python has {torch}; the job's `setup` installs it on all nodes",
                nodes=nodes,
                torch=torch,
            )
        )
        for name in pythons.without:
            modules = machines.found[name].modules if name in machines.found else ()
            if modules:
                listed = ", ".join(modules)
                notice(
                    tr(
                        "{node}: modules: {modules}; to use one: `activate: module load NAME`",
                        node=name,
                        modules=listed,
                    )
                )

    def _write_unread(self, machines: Machines) -> int:
        """Write what `init --keys` needs if keys are all that is missing; else nothing."""
        codes = {error.code for error in machines.failures.values()}
        if codes == {UNKNOWN_HOST} and self._prompts.interactive:
            info(tr("nothing was written: the host keys were not accepted"))
        elif codes <= set(LOGIN_REFUSED):
            text = render_inventory(machines.imported, self._name, made_by="init")
            write_new_file(text, str(self._inventory), force=self._options.force)
            info(
                tr(
                    "wrote {inventory} without NICs and GPUs, because no machine accepted a login",
                    inventory=self._inventory,
                )
            )
            push = f"{self._cd_prefix}{self._command} init --keys"
            hint(tr("next: {command}; then repeat this command with --force", command=push))
        else:
            info(tr("nothing was written: no machine could be read"))
        return machines.exit_code

    def _show_refused(self, machines: Machines) -> None:
        refused = machines.failed_with(*LOGIN_REFUSED)
        if refused:
            push = f"{self._cd_prefix}{self._command} init --keys"
            names = fold_names(node.name for node in refused)
            info(tr("{nodes}: not read yet; next: {command}", nodes=names, command=push))

    # what is next

    def _check_and_launch(self, code: int) -> int:
        """Check and launch, as far as the user agrees; returns the exit code of the last step."""
        job = str(self._job)
        for verb, question in (("check", tr("Check now?")), ("launch", tr("Launch now?"))):
            if not self._prompts.agrees(question):
                self._hint_next(verb)
                return code
            code = self._run_verb(verb, job)
            if code != 0:
                return code
        return code

    def _run_verb(self, verb: str, job: str) -> int:
        """Run another verb of this program with the new files, as if it had been typed."""
        context = click.get_current_context().find_root()
        group = context.command
        command = group.get_command(context, verb) if isinstance(group, click.Group) else None
        assert command is not None
        is_here = self._folder == Path() and is_local_file_used()
        inventory = None if is_here else str(self._inventory)
        settings = replace(self._settings, inventory=inventory, lab=None, hosts=None)
        with command.make_context(verb, [job], parent=context, obj=settings) as inner:
            code = command.invoke(inner)
        return code if isinstance(code, int) else 0

    def _hint_next(self, verb: str = "check") -> None:
        verbs = [f"{self._command} {name}" for name in ("check", "launch")]
        first, then = verbs if verb == "check" else (verbs[1], "")
        hint_next(f"{self._cd_prefix}{first}", then)

    @property
    def _command(self) -> str:
        """The beginning of a command that uses the new inventory, also where CLUSTERCTL_INVENTORY names another."""
        return "clusterctl" if is_local_file_used() else "clusterctl -i inventory.yaml"

    @property
    def _cd_prefix(self) -> str:
        return "" if self._folder == Path() else f"{command_line('cd', str(self._folder))}; "


def _to_json(files: Sequence[Path], machines: Machines) -> InitDocument:
    """Return the document of `init --json`: the inventory, the job and what its `setup` needs, and the machines."""
    return {
        "schema": 1,
        "files": [str(path) for path in files],
        "nodes": [node.name for node in machines.nodes],
        "errors": {name: f"{error.code} {error.english}" for name, error in machines.failures.items()},
    }
