"""What reads frames on the client is given changed ones: only a value with bounds or an error of ours comes out."""

from __future__ import annotations

import json
import math
import tempfile
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from fuzzing import (
    DRIVERS,
    FRAMES,
    INTERPRETER,
    NODE,
    Line,
    Place,
    Tally,
    conversation,
    fuzz,
    load,
    render,
    unbounded,
    without_network,
)

from clusterctl.client.rpc import tasks

# cases; the bench takes as many as one wants
COUNT = dict.fromkeys(("check", "submit", "cancel", "warm"), 20)
COUNT |= {"ps": 150, "files": 65, "clean": 100, "queue": 30}
USUAL = 60
MAX_FAULTS = 20
ABROAD = ("/srv", "/root", "/tmp/", "http://", "https://", "proxy")


@pytest.mark.parametrize("verb", DRIVERS)
def test_changed_frames(verb: str) -> None:
    """No frame ends a command by an exception of Python's; the same seed gives the same cases."""
    tally = Tally()

    faults = [str(fault) for fault in islice(fuzz(verb, COUNT.get(verb, USUAL), "1", tally), MAX_FAULTS)]

    assert not faults, f"{len(faults)} of {tally.cases} cases\n" + "\n".join(faults)
    assert tally.refused, "no case was refused: the frames were not changed"
    assert tally.taken, "no case was understood: the frames were spoilt altogether"


@pytest.mark.parametrize("verb", DRIVERS)
def test_honest_frames_are_understood(verb: str) -> None:
    """The seeds are what nodes send today, and the same seed changes them in the same way."""
    with tempfile.TemporaryDirectory() as folder, without_network():
        place = Place(Path(folder))
        for talk in load(verb, place.scan):
            answer = b"".join(render(header, body.encode("latin-1")) for header, body in talk)
            DRIVERS[verb][0](Line(answer + render({"end": True}, b"")), place)

    assert conversation(Random("1"), load(verb)) == conversation(Random("1"), load(verb))


def test_no_more_runs_are_read_than_were_asked_for() -> None:
    """A node that sends more runs than the limit fills no memory with them."""
    state = {"run": "a-20260101T000000-0001", "state": "RUNNING"}
    answer = render({"runs": [state] * 3000}, b"") + render({"end": True}, b"")
    with without_network():
        assert len(tasks.ps(Line(answer), NODE, INTERPRETER, None, 200).runs) == 200


def test_every_verb_of_the_payload_is_fuzzed() -> None:
    """A new verb needs recorded frames and a driver."""
    recorded = {path.stem for path in FRAMES.glob("*.json")}

    assert recorded == set(DRIVERS)


@pytest.mark.parametrize(
    "value", [float("nan"), math.inf, 10**400, "x" * 100_000, [[{"x": -math.inf}]], ("a", {"b": 2**70})]
)
def test_what_has_no_bounds_is_seen(value: object) -> None:
    """The judge can fail."""
    assert unbounded(value)


def test_frames_name_no_place_of_their_making() -> None:
    """Recorded frames hold nothing of the machine on which they were recorded."""
    for path in FRAMES.glob("*.json"):
        text = path.read_text(encoding="ascii")
        json.loads(text)
        assert not [word for word in ABROAD if word in text]
