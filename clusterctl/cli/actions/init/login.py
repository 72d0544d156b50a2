"""The first login on machines: host keys and a password are asked for, and the user's public key is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clusterctl.cli.actions.init.machines import ConnectOptions, Machines, read_machines
from clusterctl.cli.context.nodes import notice, prompt_secret
from clusterctl.cli.options import is_confirmed
from clusterctl.console.text import sanitize
from clusterctl.errors import ClusterctlError, LocalSystemError, UsageError
from clusterctl.interrupts import INTERRUPTS
from clusterctl.node_texts import describe_system_error
from clusterctl.specs.importers.imported import Imported
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line
from clusterctl.translation import to_translate, tr, trn

if TYPE_CHECKING:
    from clusterctl.client.ssh.key_install import HostKeyPrompts, KeyInstaller
    from clusterctl.specs.inventory.model import Node


DEFAULT_KEY_NAMES = ("id_ed25519", "id_ecdsa", "id_rsa")
TRIES = 3  # wrong passwords per node, as ssh has it
WRONG_PASSWORD = "CC-KEYS-001"
UNKNOWN_HOST = "CC-SSH-009"
NO_KEY = "CC-SSH-007"


@dataclass(frozen=True)
class PushKeysOptions:
    """The options of `init --keys`."""

    key: str | None
    password_from: str | None
    accept_new: bool
    yes: bool


class KeyPush:
    """One installation of the key."""

    def __init__(self, nodes: Sequence[Node], options: PushKeysOptions) -> None:
        self._nodes, self._options = nodes, options
        self._interactive = sys.stdin.isatty() and sys.stderr.isatty()
        self._shared_password = self._read_shared_password()
        self._results: dict[str, str] = {}
        self._errors: dict[str, ClusterctlError] = {}
        self._pending: list[Node] = []

    def run(self) -> int:
        """Push, and give the exit code."""
        from clusterctl.cli.context.nodes import notice, prompt_passphrase
        from clusterctl.client.ssh.key_install import KeyInstaller

        nodes = self._skip(self._nodes, lambda node: node.ssh.transport == "openssh")
        private = self._choose_key(nodes)
        public = _read_public(private)
        ask = prompt_passphrase if self._interactive else None
        with KeyInstaller(private, public, notice, ask_passphrase=ask) as installer:
            nodes = self._skip(nodes, installer.needs_ssh)
            self._check_access(installer, nodes)
            self._confirm_host_keys(installer)
            self._install(installer)
        return self._report(private)

    # the key

    def _skip(self, nodes: Sequence[Node], needs_ssh: Callable[[Node], bool]) -> list[Node]:
        """Leave out the nodes that the user's own ssh enters, and say what installs a key there."""
        skipped = [node for node in nodes if needs_ssh(node)]
        for node in skipped:
            self._errors[node.name] = UsageError(
                "CC-KEYS-005", node=node.name, command=command_line("ssh-copy-id", node.host)
            )
        return [node for node in nodes if node not in skipped]

    def _choose_key(self, nodes: Sequence[Node]) -> Path:
        """Return the private key: the option's, the inventory's, one of the usual ones, or a new one."""
        inventory_keys = {node.ssh.key for node in nodes if node.ssh.key}
        if self._options.key is None and len(inventory_keys) > 1:
            raise UsageError("CC-KEYS-006", names=", ".join(sorted(inventory_keys)))
        chosen = self._options.key or next(iter(inventory_keys), None)
        if chosen is not None:
            path = Path(chosen.removesuffix(".pub")).expanduser()
            return path if _key_exists(path) else self._make_key(path)
        folder = Path.home() / ".ssh"
        defaults = [folder / name for name in DEFAULT_KEY_NAMES]
        return next(filter(_key_exists, defaults), None) or self._make_key(defaults[0])

    def _make_key(self, path: Path) -> Path:
        question = tr("There is no key {path}. Create it?", path=path)
        if not self._options.yes and not (self._interactive and is_confirmed(question, default=True)):
            raise UsageError("CC-KEYS-007", path=path, command=_keygen_command(path))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
        try:
            completed = _run_keygen(command)
        except OSError as error:
            raise _key_error(path, f"ssh-keygen: {describe_system_error(error)}") from error
        if completed.returncode != 0:
            raise _key_error(path, (completed.stdout + completed.stderr).strip())
        add_passphrase = command_line("ssh-keygen", "-p", "-f", str(path))
        message = tr(
            "created {path} without a passphrase; to add one: {command}", path=path, command=add_passphrase
        )
        click.echo(message, err=True)
        return path

    # who needs what

    def _check_access(self, installer: KeyInstaller, nodes: Sequence[Node]) -> None:
        """Sort the nodes: open already, closed, in trouble."""
        for outcome in installer.check_access(nodes):
            if outcome.error is not None:
                self._errors[outcome.node.name] = outcome.error
                continue
            self._errors.pop(outcome.node.name, None)
            if outcome.value:
                self._results[outcome.node.name] = tr("accepts this key already")
            else:
                self._pending.append(outcome.node)

    def _confirm_host_keys(self, installer: KeyInstaller) -> None:
        """Show unknown host keys, and continue with those that the user accepts."""

        for _ in range(MAX_PROMPT_ROUNDS):
            if not confirm_host_keys(
                installer.hostkeys, accept_new=self._options.accept_new, interactive=self._interactive
            ):
                return
            installer.retry_bastions()
            host_key_codes = (UNKNOWN_HOST, "CC-SSH-018")
            codes = {name: error.code for name, error in self._errors.items()}
            self._check_access(
                installer, [node for node in self._nodes if codes.get(node.name) in host_key_codes]
            )

    # passwords

    def _read_shared_password(self) -> str | None:
        variable = self._options.password_from
        if variable is None:
            return None
        if not os.environ.get(variable):
            raise UsageError("CC-KEYS-008", variable=variable)
        return os.environ[variable]

    def _install(self, installer: KeyInstaller) -> None:
        """Install on all nodes without the key at once; ask again for wrong passwords, a few times."""
        for attempt in range(TRIES):
            if not self._pending:
                return
            self._pending.sort(key=lambda node: node.index)
            passwords = self._prompt_passwords(attempt)
            targets, self._pending = [node for node in self._pending if node.name in passwords], []
            self._install_with(installer, targets, passwords)
            if not self._interactive:
                return

    def _prompt_passwords(self, attempt: int) -> Mapping[str, str]:
        """Return a password for each closed node, as far as there is one."""
        if attempt == 0 and self._shared_password is not None:
            return {node.name: self._shared_password for node in self._pending}
        if not self._interactive:
            for node in self._pending:
                self._errors[node.name] = _no_terminal_error(node)
            return {}
        if attempt == 0 and len(self._pending) > 1:
            question = tr("Password for all {n} nodes (empty: one for each): ", n=len(self._pending))
            if password := prompt_secret(question):
                return {node.name: password for node in self._pending}
        passwords = {}
        for node in self._pending:
            account = f"{node.ssh.user}@{node.host}" if node.ssh.user else node.host
            passwords[node.name] = prompt_secret(
                tr(
                    "Password for {account} ({node}; empty: skip this node): ",
                    account=account,
                    node=node.name,
                )
            )
        return {name: password for name, password in passwords.items() if password}

    def _install_with(
        self, installer: KeyInstaller, nodes: Sequence[Node], passwords: Mapping[str, str]
    ) -> None:
        from clusterctl.client.rpc.cluster import fan_out

        for outcome in fan_out(nodes, lambda node: installer.install(node, passwords[node.name])):
            name, error = outcome.node.name, outcome.error
            if outcome.value is not None:
                self._errors.pop(name, None)
                self._results[name] = tr(
                    "installed in {path}; login with the key works", path=outcome.value.detail
                )
            elif error is not None:
                self._errors[name] = error
                if error.code == WRONG_PASSWORD:
                    click.echo(sanitize(tr("{node}: wrong password", node=name)), err=True)
                    self._pending.append(outcome.node)

    # the end

    def _report(self, private: Path) -> int:
        from clusterctl.cli.context.nodes import report_failures

        for node in self._nodes:
            if node.name in self._results:
                line = tr("{subject}: {text}", subject=node.name, text=self._results[node.name])
                click.echo(sanitize(line))
            elif node.name not in self._errors:
                self._errors[node.name] = _skipped_error(node)
        report_failures(self._errors[node.name] for node in self._nodes if node.name in self._errors)
        if not self._errors:
            message = trn(
                "the node accepts {key}", "all {n} nodes accept {key}", len(self._nodes), key=private
            )
            click.echo(message, err=True)
            return 0
        return 5 if self._results else max(error.exit_code for error in self._errors.values())


def push_keys(nodes: Sequence[Node], options: PushKeysOptions, command: str) -> int:
    """Install the key on these nodes and print the next command; `command` is how it begins."""
    from clusterctl.cli.context.nodes import hint_next

    code = KeyPush(nodes, options).run()
    if code == 0:
        hint_next(command_line("check", command=command))
    return code


def describe_key(key: str | None) -> str:
    """Ask whether the key that KeyPush would take is to be installed; it is made if there is none."""
    folder = Path.home() / ".ssh"
    usual = (
        (Path(key.removesuffix(".pub")).expanduser(),)
        if key
        else tuple(folder / name for name in DEFAULT_KEY_NAMES)
    )
    existing = next(filter(_key_exists, usual), None)
    if existing is not None:
        return tr("Install {key} there now?", key=existing)
    return tr("Create {key} and install it there now?", key=usual[0])


def _key_exists(private: Path) -> bool:
    return private.is_file() or Path(f"{private}.pub").is_file()  # the private half may be in ssh-agent alone


def _read_public(private: Path) -> str:
    """Read the public half; ssh-keygen makes it of the private one if the file is missing."""
    file = Path(f"{private}.pub")
    try:
        if file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace").strip()
        else:
            command = ["ssh-keygen", "-y", "-P", "", "-f", str(private)]
            completed = _run_keygen(command)
            text = completed.stdout.strip()
    except OSError as error:
        raise _key_error(
            private, f"{error.filename or 'ssh-keygen'}: {describe_system_error(error)}"
        ) from error
    if len(text.split()) < 2 or "\n" in text or "PRIVATE" in text:
        raise _key_error(private, tr("{file} does not contain exactly one public key", file=file))
    return text


def _run_keygen(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    return INTERRUPTS.call(lambda: subprocess.run(command, check=False, **options))


def _keygen_command(path: Path) -> str:
    return command_line("ssh-keygen", "-t", "ed25519", "-f", str(path))


def _key_error(path: Path, reason: str) -> LocalSystemError:
    return LocalSystemError("CC-KEYS-009", evidence=reason, path=path, command=_keygen_command(path))


def _no_terminal_error(node: Node) -> UsageError:
    return UsageError("CC-KEYS-010", node=node.name)


def _skipped_error(node: Node) -> UsageError:
    return UsageError("CC-KEYS-011", node=node.name)


MAX_PROMPT_ROUNDS = (
    10  # each bastion of a chain may have unknown host keys behind it, and a chain has up to eight
)
QUESTION = to_translate(
    "Are these the keys of the nodes (compare with `ssh-keygen -lf /etc/ssh/ssh_host_*.pub` there)?"
)


def confirm_host_keys(prompts: HostKeyPrompts, *, accept_new: bool, interactive: bool) -> bool:
    """Show the unknown hosts met so far; True if they are accepted from now on, each with the key that was shown."""
    unknown_keys = sorted(prompts.unknown_keys.values())
    for text in unknown_keys:
        click.echo(sanitize(text), err=True)
    if not unknown_keys or not (accept_new or (interactive and is_confirmed(tr(QUESTION)))):
        return False
    prompts.accept_all()
    return True


@dataclass(frozen=True)
class Prompts:
    """How questions are answered: by the user of a terminal, or all with yes, except those for new host keys."""

    yes: bool = False
    password_from: str | None = None

    @cached_property
    def interactive(self) -> bool:
        """Whether there is a terminal to ask on."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def agrees(self, question: str) -> bool:
        """Ask a question whose usual answer is yes."""
        return self.yes or (self.interactive and is_confirmed(question, default=True))


@dataclass(frozen=True)
class Login:
    """How to log in; with the folder of the `code` the Pythons of the machines are read too."""

    connect_options: ConnectOptions
    cluster: str
    code: Path | None
    prompts: Prompts

    def read(self, imported: Imported) -> Machines:
        """Read the machines, after the user's key was installed where none is accepted."""
        return self._install_keys(self._read(imported))

    def _read(self, imported: Imported) -> Machines:
        """Read all machines, and again after the user trusts new host keys."""
        from clusterctl.client.ssh.key_install import HostKeyPrompts

        keys = HostKeyPrompts(notice)
        machines = read_machines(imported, self.cluster, keys, self.code)
        for _ in range(MAX_PROMPT_ROUNDS):
            if not confirm_host_keys(keys, accept_new=False, interactive=self.prompts.interactive):
                break
            machines = read_machines(imported, self.cluster, keys, self.code)
        return machines

    def _install_keys(self, machines: Machines) -> Machines:
        """Install the user's key where none is accepted, with one password for all, and read the machines again."""
        refused, password_from = machines.failed_with(NO_KEY), self.prompts.password_from
        if not refused or not (self.prompts.interactive or password_from):
            return machines
        names, key = fold_names(node.name for node in refused), self.connect_options.key
        question = tr("{nodes}: no key is accepted. {question}", nodes=names, question=describe_key(key))
        if not self.prompts.agrees(question):
            return machines
        KeyPush(refused, PushKeysOptions(key, password_from, accept_new=False, yes=True)).run()
        return self._read(machines.imported)
