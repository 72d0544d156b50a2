"""The first login on machines: host keys and a password are asked for, and then the machines are read."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from clusterctl.cli.actions.init.machines import ConnectOptions, Machines, read_machines
from clusterctl.cli.actions.init.push_keys import (
    MAX_PROMPT_ROUNDS,
    KeyPush,
    PushKeysOptions,
    confirm_host_keys,
    describe_key,
)
from clusterctl.cli.context.nodes import notice
from clusterctl.cli.options import is_confirmed
from clusterctl.specs.importers.imported import Imported
from clusterctl.specs.nodeset import fold_names
from clusterctl.translation import tr

NO_KEY = "CC-SSH-007"


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
