"""A double of what a run's rules call: it records each call, and does nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

from clusterctl.node.gang.membership import Gang
from clusterctl.node.lifecycle.run import AttemptState, Effects, Processes, Run, RunState
from clusterctl.node.lifecycle.transitions import counts


class Call(NamedTuple):
    """One call: its name, which of a gang begins with `gang.`, and its arguments; the state of the attempt is none."""

    name: str
    arguments: dict[str, Any]


def find_method(name: str) -> Any:
    """Return what a call is one of."""
    owner = Gang if name.startswith("gang.") else Effects if hasattr(Effects, name) else Processes
    return getattr(owner, name.removeprefix("gang."))


def describe_call(name: str, *arguments: Any, **options: Any) -> Call:
    """Return a call as a value that can be compared; an event is its rule and its facts."""
    bound = inspect.signature(find_method(name)).bind_partial(None, *arguments, **options)
    bound.apply_defaults()
    values = dict(list(bound.arguments.items())[1:])
    for key, value in values.items():
        if isinstance(value, partial):
            values[key] = value.func, value.keywords
    return Call(name, {key: value for key, value in values.items() if not isinstance(value, AttemptState)})


class Calls:
    """Makes the calls that a test expects: `call.journal("ready", {})`, `call.gang.on_go()`."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix

    @property
    def gang(self) -> Calls:
        """Those of the gang."""
        return Calls("gang.")

    def __getattr__(self, name: str) -> Callable[..., Call]:
        """Return what makes a call of this name."""
        return partial(describe_call, self._prefix + name)


call = Calls()


class Recorder:
    """Records what it is called with; it is effects, processes and gang."""

    def __init__(self, calls: list[Call] | None = None, prefix: str = "") -> None:
        self.calls: list[Call] = [] if calls is None else calls
        self._prefix = prefix

    @property
    def processes(self) -> Recorder:
        """The same."""
        return self

    @property
    def gang(self) -> Recorder:
        """What records the gang's calls."""
        return Recorder(self.calls, "gang.")

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return what records a call of this name; AttributeError if there is none."""
        find_method(self._prefix + name)
        return lambda *arguments, **options: self.calls.append(
            describe_call(self._prefix + name, *arguments, **options)
        )


def make_run(state: RunState) -> tuple[Run, list[Call]]:
    """Make a run in a state, and the list of what its rules call."""
    recorder = Recorder()
    return Run(state, cast("Effects", recorder)), recorder.calls


def transition(state: RunState, event: partial[None]) -> tuple[RunState, tuple[Call, ...]]:
    """Follow the rule of an event; returns the next state and what was called."""
    run, calls = make_run(state)
    if counts(event, run.phase):
        event(run)
    return run.state, tuple(calls)
