"""The form of a run's name: nothing that leads elsewhere, and nothing that a shell acts on."""

from __future__ import annotations

import pytest

from clusterctl.protocol.run_id import job_name_of, parse_job_name, parse_run_id

GOOD = "mnist.ddp_2-20261122T071140-03b1"


@pytest.mark.parametrize("text", [GOOD, "a-20261122T071140-03b1f", "a-b-20261122T071140-0000"])
def test_a_run_id_is_read_whole(text: str) -> None:
    """A job's name, the time and some hex digits."""
    assert parse_run_id(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "mnist",
            "mnist-20261122T071140",
            f"{GOOD}/..",
            f"../{GOOD}",
            f"/tmp/{GOOD}",
            f"{GOOD}\n",
            f" {GOOD}",
        ),
        *(
            f"./{GOOD}",
            f"-{GOOD}",
            f".{GOOD}",
            f"/proc/self/cwd/{GOOD}",
            f"a;b-{GOOD}",
            f"$(id)-{GOOD}",
            f"a b-{GOOD}",
        ),
        *(
            "a-20261122T071140-03B1",
            "a-20261122T071140-03b",
            "a-\uff120261122T071140-03b1",
            "a\x00-20261122T071140-03b1",
        ),
        *("a" * 65 + "-20261122T071140-03b1", "a-20261122T071140-" + "0" * 17),
        *(None, 7, [GOOD], {GOOD: 1}, GOOD.encode()),
    ],
)
def test_anything_else_is_none(text: object) -> None:
    """A path, a part, another alphabet, a control character, a length that no job has, another type."""
    assert parse_run_id(text) is None


def test_the_job_stands_in_it() -> None:
    """Everything before the time."""
    run = parse_run_id(GOOD)
    assert run is not None
    assert job_name_of(run) == "mnist.ddp_2"


@pytest.mark.parametrize(
    ("text", "name"), [("a.b-c_1", "a.b-c_1"), ("..", ""), ("a/b", ""), ("", ""), (None, "")]
)
def test_a_jobs_name_is_one_component_of_a_path(text: object, name: str) -> None:
    """What is none becomes empty."""
    assert parse_job_name(text) == name
