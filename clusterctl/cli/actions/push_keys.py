"""Keys push, host key questions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clusterctl.console.text import sanitize
from clusterctl.errors import ClusterctlError, SystemRefusal, UsageError
from clusterctl.specs.text import command_line

if TYPE_CHECKING:
    from clusterctl.client.ssh.key_install import Doorway, Introductions
    from clusterctl.specs.inventory.model import Node


USUAL = ("id_ed25519", "id_ecdsa", "id_rsa")
TRIES = 3  # wrong passwords per node, as ssh has it
WRONG_PASSWORD = "CC-KEYS-001"
UNKNOWN_HOST = "CC-SSH-009"


@dataclass(frozen=True)
class Wishes:
    """What the command line asks for."""

    key: str | None
    same_password: bool
    password_from: str | None
    accept_new: bool
    yes: bool


class Pushing:
    """One `keys push`."""

    def __init__(self, nodes: Sequence[Node], wishes: Wishes) -> None:
        self._nodes, self._wishes = nodes, wishes
        self._attended = sys.stdin.isatty() and sys.stderr.isatty()
        self._given = self._password_of_all()
        self._done: dict[str, str] = {}
        self._errors: dict[str, ClusterctlError] = {}
        self._closed: list[Node] = []

    def run(self) -> int:
        """Push, and give the exit code."""
        from clusterctl.cli.context.load import state_dir
        from clusterctl.cli.context.nodes import ask_passphrase, notice
        from clusterctl.client.ssh.key_install import Doorway

        nodes = self._leave_out_openssh()
        private = self._choose_key(nodes)
        public = _read_public(private)
        ask = ask_passphrase if self._attended else None
        with Doorway(private, public, notice, remember=state_dir() / "ssh", ask=ask) as doorway:
            self._look(doorway, nodes)
            self._introduce(doorway)
            self._install(doorway)
        return self._report(private)

    # the key

    def _leave_out_openssh(self) -> list[Node]:
        """Nodes that the user's own ssh enters have a way of their own."""
        theirs = [node for node in self._nodes if node.ssh.transport == "openssh"]
        for node in theirs:
            self._errors[node.name] = UsageError(
                "your own ssh enters this node (transport: openssh); keys push does not",
                code="CC-KEYS-005",
                node=node.name,
                fix=command_line("ssh-copy-id", node.host),
            )
        return [node for node in self._nodes if node not in theirs]

    def _choose_key(self, nodes: Sequence[Node]) -> Path:
        """Give the private key: the option's, the inventory's, one of the usual ones, or a new one."""
        named = {node.ssh.key for node in nodes if node.ssh.key}
        if self._wishes.key is None and len(named) > 1:
            raise UsageError(
                f"the inventory names several keys: {', '.join(sorted(named))}",
                code="CC-KEYS-006",
                fix="push them one after the other, with --key FILE and --nodes",
            )
        chosen = self._wishes.key or next(iter(named), None)
        if chosen is not None:
            path = Path(chosen.removesuffix(".pub")).expanduser()
            return path if _is_there(path) else self._make_key(path)
        folder = Path.home() / ".ssh"
        usual = [folder / name for name in USUAL]
        return next(filter(_is_there, usual), None) or self._make_key(usual[0])

    def _make_key(self, path: Path) -> Path:
        question = f"There is no key {path}. Make one?"
        if not self._wishes.yes and not (self._attended and click.confirm(question, default=True, err=True)):
            raise UsageError(
                f"there is no key {path}",
                code="CC-KEYS-007",
                fix=f"add -y to have one made, or run {_generate(path)}",
            )
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise _no_key(path, f"ssh-keygen: {error.strerror}") from error
        if done.returncode != 0:
            raise _no_key(path, (done.stdout + done.stderr).strip())
        protect = command_line("ssh-keygen", "-p", "-f", str(path))
        click.echo(f"made {path}, without a passphrase ({protect} gives it one)", err=True)
        return path

    # who needs what

    def _look(self, doorway: Doorway, nodes: Sequence[Node]) -> None:
        """Sort the nodes: open already, closed, in trouble."""
        for outcome in doorway.look(nodes):
            if outcome.error is not None:
                self._errors[outcome.node.name] = outcome.error
                continue
            self._errors.pop(outcome.node.name, None)
            if outcome.value:
                self._done[outcome.node.name] = "opens with this key already"
            else:
                self._closed.append(outcome.node)

    def _introduce(self, doorway: Doorway) -> None:
        """Show the host keys that nobody here knows, and go on with those that are agreed to."""

        for _ in range(MOST_MEETINGS):
            if not introduce(doorway.hostkeys, believe=self._wishes.accept_new, attended=self._attended):
                return
            doorway.welcome()
            strange = (UNKNOWN_HOST, "CC-SSH-018")
            codes = {name: error.code for name, error in self._errors.items()}
            self._look(doorway, [node for node in self._nodes if codes.get(node.name) in strange])

    # passwords

    def _password_of_all(self) -> str | None:
        variable = self._wishes.password_from
        if variable is None:
            return None
        if not os.environ.get(variable):
            raise UsageError(
                f"--password-from: {variable} is not set",
                code="CC-KEYS-008",
                fix=f"read -rs {variable}; export {variable}",
            )
        return os.environ[variable]

    def _install(self, doorway: Doorway) -> None:
        """Install on all closed nodes at once; those that refuse a password are asked for again, a few times."""
        for round_ in range(TRIES):
            if not self._closed:
                return
            self._closed.sort(key=lambda node: node.node_rank)
            passwords = self._ask(round_)
            waiting, self._closed = [node for node in self._closed if node.name in passwords], []
            self._install_with(doorway, waiting, passwords)
            if not self._attended:
                return

    def _ask(self, round_: int) -> Mapping[str, str]:
        """Give a password for each closed node, as far as there is one."""
        if round_ == 0 and self._given is not None:
            return {node.name: self._given for node in self._closed}
        if not self._attended:
            for node in self._closed:
                self._errors[node.name] = _nobody_to_ask(node)
            return {}
        if round_ == 0 and self._wishes.same_password:
            password = _ask_password(f"Password for {_all(len(self._closed))}")
            return {node.name: password for node in self._closed if password}
        found = {}
        for node in self._closed:
            who = f"{node.ssh.user}@{node.host}" if node.ssh.user else node.host
            found[node.name] = _ask_password(f"Password for {who} ({node.name}; empty: leave it out)")
        return {name: password for name, password in found.items() if password}

    def _install_with(self, doorway: Doorway, nodes: Sequence[Node], passwords: Mapping[str, str]) -> None:
        from clusterctl.client.rpc.fanout import fan_out

        for outcome in fan_out(nodes, lambda node: doorway.install(node, passwords[node.name])):
            name, error = outcome.node.name, outcome.error
            if outcome.value is not None:
                self._errors.pop(name, None)
                self._done[name] = f"installed in {outcome.value.detail}, and proven"
            elif error is not None:
                self._errors[name] = error
                if error.code == WRONG_PASSWORD:
                    click.echo(sanitize(f"{name}: wrong password"), err=True)
                    self._closed.append(outcome.node)

    # the end

    def _report(self, private: Path) -> int:
        from clusterctl.cli.context.nodes import tell_failures

        for node in self._nodes:
            if node.name in self._done:
                click.echo(sanitize(f"{node.name}: {self._done[node.name]}"))
            elif node.name not in self._errors:
                self._errors[node.name] = _left_out(node)
        tell_failures(self._errors[node.name] for node in self._nodes if node.name in self._errors)
        if not self._errors:
            click.echo(f"{private} opens {_all(len(self._nodes))}", err=True)
            return 0
        return 5 if self._done else max(error.exit_code for error in self._errors.values())


def _is_there(private: Path) -> bool:
    return private.is_file() or Path(f"{private}.pub").is_file()  # the private half may be in ssh-agent alone


def _read_public(private: Path) -> str:
    """Read the public half; ssh-keygen makes it of the private one if the file is missing."""
    file = Path(f"{private}.pub")
    try:
        if file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace").strip()
        else:
            words = ["ssh-keygen", "-y", "-P", "", "-f", str(private)]
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            text = done.stdout.strip()
    except OSError as error:
        raise _no_key(private, f"{error.filename or 'ssh-keygen'}: {error.strerror}") from error
    if len(text.split()) < 2 or "\n" in text or "PRIVATE" in text:
        raise _no_key(private, f"{file} does not hold one public key")
    return text


def _generate(path: Path) -> str:
    return command_line("ssh-keygen", "-t", "ed25519", "-f", str(path))


def _no_key(path: Path, why: str) -> SystemRefusal:
    fix = f"make it by hand: {_generate(path)}"
    return SystemRefusal(f"the key {path} cannot be used", code="CC-KEYS-009", evidence=why, fix=fix)


def _ask_password(text: str) -> str:
    from getpass import getpass

    try:
        return getpass(f"{text}: ", stream=sys.stderr)
    except EOFError:
        return ""


def _all(count: int) -> str:
    return f"all {count} nodes" if count > 1 else "the node"


def _nobody_to_ask(node: Node) -> UsageError:
    return UsageError(
        "the node wants a password, and there is no terminal to ask for it",
        code="CC-KEYS-010",
        node=node.name,
        fix="run it in a terminal, or put the password into a variable and name that: --password-from VARIABLE",
    )


def _left_out(node: Node) -> UsageError:
    return UsageError(
        "left out: no password was given", code="CC-KEYS-011", node=node.name, fix="run it again"
    )


MOST_MEETINGS = 10  # behind a bastion that is met first there are more to meet, and a chain has eight
QUESTION = "Are these the nodes' own keys (compare with `ssh-keygen -lf /etc/ssh/ssh_host_*.pub` there)?"


def introduce(introductions: Introductions, *, believe: bool, attended: bool) -> bool:
    """Show the strangers met so far; True if they are welcome from now on, each with the very key that was shown."""
    strangers = sorted(introductions.strangers.values(), key=lambda one: (one.node, one.place))
    for one in strangers:
        text = f"{one.node} ({one.place}) is not known here yet; it shows {one.key_type} {one.fingerprint}"
        click.echo(sanitize(text), err=True)
    if not strangers or not (believe or (attended and click.confirm(QUESTION, err=True))):
        return False
    introductions.welcome_all()
    return True
