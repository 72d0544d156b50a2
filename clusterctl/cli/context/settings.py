"""The values of the options that all verbs share; not in `options`, since completion finds the inventory by them."""

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

    @property
    def command(self) -> str:
        """Give the beginning of a command to paste that means the same inventory."""
        chosen = ["-i", self.inventory] if self.inventory else ["--lab", self.lab] if self.lab else []
        return command_line("clusterctl", *chosen)


@dataclass(frozen=True)
class LaunchOptions:
    """The options of one launch."""

    detach: bool
    no_check: bool
    as_json: bool
    wait: bool = False
    command: str = "clusterctl"  # how hints begin, with the `-i` that was given
    allow_big: bool = False
    recheck: bool = False
