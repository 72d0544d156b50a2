"""Checkpoints that the nodes of a run keep for each other: how far each is by what they report, and that in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from clusterctl.node_texts import translate_node_text
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.text import render_duration, render_seconds, render_size
from clusterctl.translation import tr, trn

Stage = Literal["collecting", "copying", "safe", "lost", "skipped"]
STAGES: tuple[Stage, ...] = ("collecting", "copying", "safe", "lost", "skipped")
MAX_CHECKPOINTS = 64
MAX_COUNT = 1 << 20  # nodes, copies
MAX_BYTES = 1 << 60
MAX_NAME, MAX_NOTE = 200, 300  # characters
MAX_NAMES = 4  # of lost ones in a line
MAX_SECONDS = 1e9


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint of all nodes: `nodes` of `of` have reported their files, and each file is on `copies` nodes.

    `time` is when it was complete (Unix seconds, by the clock of the node that reports it). `shared`: all nodes see the
    same files, and nothing is copied. `number`: of two a later one has a higher one, 0 is none; `hub` reports it.
    """

    name: str
    attempt: int
    state: Stage
    nodes: int
    of: int
    copies: int
    files: int
    bytes: int
    time: float | None
    shared: bool
    note: str
    number: int
    hub: bool


def parse_checkpoints(raw: Untrusted) -> tuple[Checkpoint, ...]:
    """Read what a node reports, the newest last; what has no name or state is left out."""
    found = (_parse_checkpoint(entry) for entry in raw.records("checkpoints", MAX_CHECKPOINTS))
    return tuple(checkpoint for checkpoint in found if checkpoint is not None)


def _parse_checkpoint(raw: Untrusted) -> Checkpoint | None:
    name, state = raw.text("name", MAX_NAME), raw.one_of("state", STAGES)
    if not name or state == "":
        return None
    return Checkpoint(
        name=name,
        attempt=raw.count("attempt") or 1,
        state=state,
        nodes=raw.count("nodes", MAX_COUNT),
        of=raw.count("of", MAX_COUNT),
        copies=raw.count("copies", MAX_COUNT),
        files=raw.count("files"),
        bytes=raw.count("bytes", MAX_BYTES),
        time=raw.moment("time") or None,
        shared=raw.flag("shared"),
        note=raw.text("note", MAX_NOTE),
        number=raw.count("number"),
        hub=raw.flag("hub"),
    )


def choose_checkpoints(reports: Iterable[tuple[Sequence[Checkpoint], float]]) -> tuple[Checkpoint, ...]:
    """Choose the report of a node that knows the latest checkpoint, of these the hub's.

    `reports` come with the node's clock minus ours; the times in the result are by our clock.
    """
    shifted = [tuple(_shift(checkpoint, offset) for checkpoint in found) for found, offset in reports]
    return max(shifted, key=_freshness, default=())


def _shift(checkpoint: Checkpoint, offset: float) -> Checkpoint:
    return checkpoint if checkpoint.time is None else replace(checkpoint, time=checkpoint.time - offset)


def _freshness(checkpoints: Sequence[Checkpoint]) -> tuple[int, int, bool, float, int]:
    attempt = max((checkpoint.attempt for checkpoint in checkpoints), default=0)
    number = max((checkpoint.number for checkpoint in checkpoints), default=0)
    moment = max((checkpoint.time or 0.0 for checkpoint in checkpoints), default=0.0)
    return attempt, number, any(checkpoint.hub for checkpoint in checkpoints), moment, len(checkpoints)


def describe_checkpoints(checkpoints: Sequence[Checkpoint], now: float) -> str:
    """Return how far the newest checkpoint is, and the newest safe one: `step-300: 4/4 nodes, 2 copies, 40s ago`."""
    kept = [checkpoint for checkpoint in checkpoints if checkpoint.state != "skipped"]
    safe = next((checkpoint for checkpoint in reversed(kept) if checkpoint.state == "safe"), None)
    later = kept[kept.index(safe) + 1 :] if safe else kept
    lost = [checkpoint.name for checkpoint in later if checkpoint.state == "lost"]
    texts = (
        [trn("{names} is lost", "{names} are lost", len(lost), names=", ".join(lost[-MAX_NAMES:]))]
        if lost
        else []
    )
    texts += [_describe(checkpoint, now) for checkpoint in later[-1:] if checkpoint.state != "lost"]
    texts += [_describe(safe, now)] if safe else [tr("none is safe")] if lost else []
    if checkpoints and checkpoints[-1].state == "skipped":
        texts.append(_describe_skipped(checkpoints[-1].name, translate_node_text(checkpoints[-1].note)))
    return tr("; ").join(texts)


def find_safe(checkpoints: Sequence[Checkpoint]) -> str | None:
    """Return the name of the newest checkpoint that is safe."""
    return next((one.name for one in reversed(checkpoints) if one.state == "safe"), None)


def _describe(checkpoint: Checkpoint, now: float) -> str:
    age = ""
    if checkpoint.time is not None:
        age = tr(", {age} ago", age=render_duration(max(0.0, now - checkpoint.time)))
    facts = {"name": checkpoint.name, "nodes": f"{checkpoint.nodes}/{checkpoint.of}", "age": age}
    if checkpoint.shared:
        return tr("{name}: {nodes} nodes, which share its files{age}", **facts)
    if checkpoint.state == "collecting":
        return tr("{name}: {nodes} nodes have all of their files", **facts)
    if checkpoint.state == "copying":
        return trn(
            "{name}: {nodes} nodes, {n} copy so far{age}",
            "{name}: {nodes} nodes, {n} copies so far{age}",
            checkpoint.copies,
            **facts,
        )
    return trn(
        "{name}: {nodes} nodes, {n} copy{age}",
        "{name}: {nodes} nodes, {n} copies{age}",
        checkpoint.copies,
        **facts,
    )


def _describe_skipped(name: str, why: str) -> str:
    return tr("{name} was skipped: {why}", name=name, why=why) if why else tr("{name} was skipped", name=name)


def describe_event(event: Untrusted) -> tuple[str, bool]:
    """Return what a line of a journal reports of checkpoints, and whether it is bad; empty where it is about others."""
    kind, name = event.text("event", MAX_NAME), event.text("name", MAX_NAME)
    if kind == "resume":
        return _describe_resume(event, name), False
    if kind != "checkpoint":
        return "", False
    why = translate_node_text(event.text("note", MAX_NOTE))
    state = event.one_of("state", STAGES)
    if state == "safe":
        return (
            tr("checkpoint {name}: {why}", name=name, why=why) if why else _describe_safe(event, name)
        ), False
    return _describe_problem(event, state, name, why), True


def _describe_problem(event: Untrusted, state: Stage | Literal[""], name: str, why: str) -> str:
    """Describe what is not safe; empty for what is on its way. Without a state it is about a node alone."""
    if state == "skipped":
        return tr("checkpoint {text}", text=_describe_skipped(name, why))
    if state == "lost":
        text = tr("checkpoint {name} is lost", name=name)
        return tr("{text}: {reason}", text=text, reason=why) if why else text
    if state == "copying" and why:
        copies = event.count("copies", MAX_COUNT)
        return trn(
            "checkpoint {name} has {n} copy: {why}",
            "checkpoint {name} has {n} copies: {why}",
            copies,
            name=name,
            why=why,
        )
    return "" if state else why


def _describe_safe(event: Untrusted, name: str) -> str:
    return trn(
        "checkpoint {name} is safe: {nodes} nodes, {n} copy, {size}",
        "checkpoint {name} is safe: {nodes} nodes, {n} copies, {size}",
        event.count("copies", MAX_COUNT),
        name=name,
        size=render_size(event.count("bytes", MAX_BYTES)),
        nodes=event.count("of", MAX_COUNT),
    )


def _describe_resume(event: Untrusted, name: str) -> str:
    files, seconds = event.count("files"), event.number("seconds", 0.0, MAX_SECONDS) or 0.0
    if not files:
        return tr("resumes from checkpoint {name}, whose files are all here", name=name)
    facts = {
        "name": name,
        "size": render_size(event.count("bytes", MAX_BYTES)),
        "span": render_seconds(seconds),
    }
    return trn(
        "resumes from checkpoint {name}: {n} file ({size}) in {span}",
        "resumes from checkpoint {name}: {n} files ({size}) in {span}",
        files,
        **facts,
    )
