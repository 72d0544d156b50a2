"""The values of the options that all verbs share; apart from `load`, whose imports `--help` does without."""

from __future__ import annotations

from dataclasses import dataclass

from clusterctl.specs.text import command_line


@dataclass(frozen=True)
class Settings:
    """The values of the shared options."""

    inventory: str | None = None
    lab: str | None = None
    verbose: bool = False
    quiet: bool = False
    color: str = "auto"
    hosts: str | None = None

    @property
    def command(self) -> str:
        """Return the beginning of a command to paste that means the same inventory."""
        chosen = [word for option, value in self.choices for word in (option, value)]
        return command_line("clusterctl", *chosen)

    @property
    def choices(self) -> list[tuple[str, str]]:
        """The options that choose the inventory, with their values."""
        given = (("-i", self.inventory), ("--lab", self.lab), ("--hosts", self.hosts))
        return [(option, value) for option, value in given if value]
