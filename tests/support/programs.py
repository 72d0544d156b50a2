"""Runs of one program, without torchrun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noderun import NodeRun

Make = Callable[..., NodeRun]


def program(node: Make, argv: list[Any], script: str = "", **changes: Any) -> NodeRun:
    """Make a run of one program."""
    return node(script, module=None, argv=argv, processes=1, **changes)


def go(run: NodeRun, port: int = 0) -> NodeRun:
    """Start and give GO; no one reports `listening`, the node lets go of its client at once."""
    run.start()
    run.hear("ready")
    assert run.session is not None
    run.session.send({"do": "go", "master_port": port or run.port})
    run.hear("go_received")
    run.hear("end")
    run.session.close()
    return run
