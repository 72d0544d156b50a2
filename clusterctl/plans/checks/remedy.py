"""Remedies: commands to paste, and lines to edit."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from clusterctl.plans.facts import Facts
from clusterctl.specs.commandline import command_line, quote_word
from clusterctl.specs.inventory import Node
from clusterctl.specs.nodeset import fold_names


def ssh_to(node: Node, command: str) -> str:
    """Give the ssh command that runs something on a node."""
    words = ["ssh"]
    if node.ssh.config:
        words += ["-F", node.ssh.config]
    if node.ssh.port not in {None, 22}:
        words += ["-p", str(node.ssh.port)]
    if node.ssh.key:
        words += ["-i", node.ssh.key]
    if node.ssh.jump:
        words += ["-J", node.ssh.jump]
    if node.ssh.proxy_command:
        words += ["-o", f"ProxyCommand={node.ssh.proxy_command}"]
    target = f"{node.ssh.user}@{node.host}" if node.ssh.user else node.host
    return f"{command_line(*words, target)} {quote_word(command)}"


def ask_first(nodes: Iterable[Node], names: Collection[str], command: str) -> str:
    """Give the ssh command that runs something on the first of the named nodes."""
    return ssh_to(next(node for node in nodes if node.name in names), command)


def without(names: Iterable[str]) -> str:
    """Give the option that leaves nodes out."""
    return command_line("--exclude", fold_names(list(names)))


def as_root(node: Node, facts: Facts, command: str) -> str:
    """Give the ssh command that runs something as root on a node."""
    return ssh_to(node, command if facts.account.uid == 0 else f"sudo {command}")


def pip_install(node: Node, facts: Facts, *packages: str) -> str:
    """Give the command that installs packages for the node's interpreter."""
    python = facts.interpreter.executable or node.python
    return ssh_to(node, command_line(python, "-m", "pip", "install", *packages))


def install_torch(node: Node, facts: Facts, version: str | None) -> str:
    """Give the command that installs torch, in the given version if there is one.

    A local tag such as +cu126 is only in PyTorch's own index or a mirror of it, which the user must choose.
    """
    command = pip_install(node, facts, f"torch=={version}" if version else "torch")
    return f"{command}  # with --index-url: PyTorch's index" if "+" in (version or "") else command


def in_inventory(node: Node, line: str) -> str:
    """Say which line to write in the inventory."""
    return f"inventory, node {node.name}: {line}"
