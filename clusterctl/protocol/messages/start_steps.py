"""What starts an agent sends it, and waits for, up to its gate: the same over SSH and in a job of Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Tuple, Union

if TYPE_CHECKING:
    from .files import Spec
    from .verbs import EventName

    StartStep = Tuple[Union["StartOrder", Literal[""]], Union[EventName, Literal[""]]]

StartOrder = Literal["join", "listeners", "before"]


def has_listeners(spec: Spec) -> bool:
    """Return whether every agent of a run listens, since any of them may have to be the hub."""
    return bool(spec.get("gang") and spec.get("restart"))


def list_start_steps(spec: Spec, *, is_hub: bool, makes_environment: bool) -> list[StartStep]:
    """List what starts an agent does up to its gate: of each step what is sent, and which event is awaited, if any.

    These steps are the same over SSH and in a job of Slurm. Before them the agent has reported `started`, and with it
    whether its environment is there and at which ports it listens. One that makes its environment has no gate before
    that is done; a spare has none until it is needed.
    """
    steps: list[StartStep] = []
    if spec.get("gang") and not is_hub:
        steps.append(("join", "joined"))
    elif has_listeners(spec):
        steps.append(("listeners", ""))
    if makes_environment:
        steps.append(("", "environment"))
    if not spec.get("spare"):
        steps.append(("before" if spec.get("before") else "", "ready"))
    return steps
