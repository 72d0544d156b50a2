"""What ends a run or a lab that no one has named asks first; which of several labs is meant is never guessed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import COMMAND, Result, cctl, environment, leftovers, make_project
from terminal import converse

from clusterctl.lab import labs
from clusterctl.lab.labs import Lab

SLEEPS = "import time; time.sleep(600)"


def test_stop_without_a_name_asks(cluster: Lab, tmp_path: Path) -> None:
    """The question reports what would end; without a terminal nothing does, and the command to type is shown."""
    job = make_project(tmp_path, SLEEPS, launcher="python", nodes=2, grace="0s")
    run = cctl(cluster, "launch", "-d", job, cwd=tmp_path).out.strip()

    refused = cctl(cluster, "stop")
    code, asked = converse([*COMMAND, "stop"], environment(cluster), [("Stop it? [y/N]:", "n")])
    shown = json.loads(cctl(cluster, "ps", "--json").out)["runs"][0]
    status = cctl(cluster, "status", run).out

    assert (refused.code, "CC-USE-091" in refused.err) == (2, True)
    for text in (refused.err, asked):
        assert f"{run}: RUNNING, launched by" in text and str(tmp_path)[-40:] in text
        assert f"on gpu[01-02] of inventory {cluster.inventory}" in text
    assert f"fix: clusterctl stop {run}" in refused.err
    assert (code, "nothing was stopped" in asked) == (2, True)
    assert (shown["run"], shown["state"], shown["launched_from"]) == (run, "RUNNING", str(tmp_path))
    assert str(tmp_path)[-40:] in status

    code, ended = converse([*COMMAND, "stop"], environment(cluster), [("Stop it? [y/N]:", "y")])
    assert (code, leftovers(cluster)) == (0, {})
    assert "gpu01: stopped launcher (pid " in ended and "torchrun" not in ended
    again = cctl(cluster, "stop", run)
    assert again.code == 0 and "gpu01: stopped" not in again.out and f"{run}: already ended" in again.out


@pytest.fixture
def home(place: Path, namespaces: None) -> Iterator[dict[str, str]]:  # noqa: ARG001 - skips where there can be none
    """A state directory for labs of its own."""
    yield {"XDG_STATE_HOME": str(place)}
    labs.down(place / "clusterctl" / "lab")


def up(home: dict[str, str], name: str, folder: Path) -> Result:
    """Start a lab of one node from a folder."""
    return cctl(None, "lab", "up", "-n", "1", "--name", name, cwd=folder, **home)


def test_two_labs_are_named_and_chosen(home: dict[str, str], tmp_path: Path) -> None:
    """A command names both and how to choose; --lab chooses on both sides of the verb, and `lab` is a default."""
    assert [up(home, name, tmp_path).code for name in ("one", "two")] == [0, 0]
    lost = cctl(None, "ps", cwd=tmp_path, **home)
    assert lost.code == 2 and "2 labs are running: one, two" in lost.err and "--lab one" in lost.err

    for words in (["--lab", "two", "ps"], ["ps", "--lab", "two"]):
        chosen = cctl(None, *words, cwd=tmp_path, **home)
        assert chosen.code == 0 and "inventory: lab two (given by --lab)" in chosen.err
    inventory = Path(home["XDG_STATE_HOME"], "clusterctl", "lab", "two", "inventory.yaml")
    healed = cctl(None, "-i", inventory, "lab", "heal", "gpu01", "--json", **home)
    assert [lab["name"] for lab in json.loads(healed.out)["labs"]] == ["two"], healed.err
    inside = cctl(
        None, "-i", inventory.name, "lab", "ssh", "gpu01", "--", "hostname", cwd=inventory.parent, **home
    )
    assert (inside.code, inside.out) == (0, "gpu01\n"), inside.err
    both = cctl(None, "-i", "x.yaml", "ps", "--lab", "two", **home)
    assert (both.code, "CC-USE-090" in both.err) == (2, True)
    unknown = cctl(None, "--lab", "three", "ps", **home)
    assert unknown.code == 2 and "running: one, two" in unknown.err

    down = cctl(None, "lab", "down", **home)
    assert down.code == 2 and "2 labs are running: one, two" in down.err
    assert cctl(None, "--lab", "two", "lab", "down", **home).code == 0
    assert up(home, "lab", tmp_path).code == 0
    told = cctl(None, "ps", **home)
    assert told.code == 0 and "also running: one; select with --lab NAME" in told.err


def test_lab_down_without_a_name_asks(home: dict[str, str], tmp_path: Path) -> None:
    """It reports which lab that is, of what age, and from where; -y and a name need no question."""
    assert up(home, "mine", tmp_path).code == 0
    refused = cctl(None, "lab", "down", **home)
    words = [*COMMAND, "lab", "down"]
    code, asked = converse(words, environment(None, **home), [("and everything that runs there?", "n")])

    assert (refused.code, "CC-USE-091" in refused.err, code) == (2, True, 2)
    for text in (refused.err, asked):
        assert "lab mine: gpu01, up for" in text and f"started in {tmp_path}" in text
    assert "fix: clusterctl lab down --name mine" in refused.err
    code, _ = converse(words, environment(None, **home), [("and everything that runs there?", "y")])
    assert (code, cctl(None, "lab", "status", **home).out) == (0, "")


def test_a_removal_that_was_cut_short_is_finished(place: Path, namespaces: None) -> None:  # noqa: ARG001
    """The name is free at once, and whatever was left goes with the next look; so does what older versions left."""
    for kept in ("plan.json", "lab.json"):  # an interrupted rmtree leaves any part of it
        left = place / "old"
        (left / "nodes" / "gpu01" / "home").mkdir(parents=True)
        (left / kept).write_text("{}", encoding="utf-8")
        assert labs.down(place, ["old"]) == []
        assert not left.exists()

    left = place / ".removed-old-00000000"
    (left / "nodes").mkdir(parents=True)
    (left / "nodes").chmod(0)
    labs.remove_dead(place)
    assert list(place.iterdir()) == []


def test_the_name_is_free_while_a_lab_is_removed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is killed while files go has ended the lab already."""
    (place / "big").mkdir()
    (place / "big" / "plan.json").write_text("{}", encoding="utf-8")

    def interrupted(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "rmtree", interrupted)
        labs.down(place, ["big"])
    assert not (place / "big").exists()
    labs.remove_dead(place)
    assert list(place.iterdir()) == []
