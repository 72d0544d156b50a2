"""The root cause on the screen: for one rank, for eight, for two hundred; and files outside the output directory."""

from __future__ import annotations

import io
import json
import shlex
from dataclasses import replace

import pytest
from ends import judge
from failures import fail

from clusterctl.console.run.remarks import render_outside, render_outside_note
from clusterctl.console.run.verdict import (
    render_cause,
    render_hang,
    show_verdict,
)
from clusterctl.plans.diagnose.evidence import BusyProcess
from clusterctl.plans.diagnose.hang import Judgement
from clusterctl.plans.diagnose.kept import KeptDiagnosis
from clusterctl.plans.runs.cause import explain_cause
from clusterctl.plans.runs.speed import Reason, SpeedVerdict, Wait
from clusterctl.plans.runs.state import Attempt
from clusterctl.plans.runs.verdict import cause_to_json, verdict_to_json
from clusterctl.plans.sync.listed_files import OutsideFiles
from clusterctl.protocol.root_cause import Failure, find_cause
from clusterctl.protocol.run_paths import short_id
from clusterctl.protocol.tracebacks import clip

ATTEMPT = Attempt(1, "node_lost", "gpu02 is lost", "gpu01", None, None, None)


class Screen(io.StringIO):
    """A terminal that remembers all that was written to it."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


MEMORY = (
    "Traceback (most recent call last):",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.",
)
GONE = (
    "Traceback (most recent call last):",
    "RuntimeError: [pair.cc:537] Connection closed by peer [10.0.0.2]:4242",
)
WATCHDOG = ("[E1121 x.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77)",)


def screen(failures: list[Failure], stopped_at: float | None) -> list[str]:
    """Render the cause of some failures."""
    cause = find_cause(failures, stopped_at)
    assert cause is not None
    return render_cause(cause, "r", "clusterctl -i lab.yaml")


def test_one_rank_alone() -> None:
    """The exception, its code, what it means, the command with the inventory that is in use, the last lines."""
    lines = screen([fail(0, MEMORY, 1.0)], None)

    assert lines[:2] == [
        "rank 0 on gpu01: CUDA out of memory (tried 2 GiB)   CC-JOB-001",
        f"    {MEMORY[1]}",
    ]
    assert lines[2].startswith("    The GPU is out of memory. ")
    assert lines[-2:] == [
        "    fix   clusterctl -i lab.yaml exec --nodes gpu01 -- nvidia-smi",
        "    next  clusterctl -i lab.yaml logs r --rank 0",
    ]


def test_a_rank_without_an_exception_shows_its_last_lines() -> None:
    """They are the only evidence then; `-v` shows them of every failure."""
    lines = screen([fail(0, ("oops", "bye"), 1.0)], None)
    assert lines == [
        "rank 0 on gpu01: exit code 1",
        "    last stderr lines:",
        "    | oops",
        "    | bye",
        "    next  clusterctl -i lab.yaml logs r --rank 0",
    ]


def test_the_users_own_frame_is_shown_of_a_deep_stack() -> None:
    """The innermost one outside of the libraries, below the folder of the code, in one line."""
    stack = (
        "Traceback (most recent call last):",
        '  File "/home/ann/.clusterctl/runs/r-1/0-gpu01/code/src/train.py", line 12, in <module>',
        f"    model(batch)  # {'x' * 300}",
        *(
            text
            for number in range(30)
            for text in (
                f'  File "/venv/lib/python3.11/site-packages/torch/nn/m.py", line {number}',
                "    f()",
            )
        ),
        "ValueError: bad shape",
    )
    lines = screen([fail(0, stack, 1.0)], None)
    assert lines[1].startswith("    src/train.py:12   model(batch)  # xxx")
    assert (lines[1][-3:], len(lines[1])) == ("...", 110)


def test_a_headline_fits_an_eighty_column_terminal() -> None:
    """It keeps the first sentence of a long message, breaks between words, and the whole message follows."""
    said = "RuntimeError: The size of tensor a does not match. It was 3 and must be 4 in dimension 1, see the docs"
    cause = find_cause([fail(0, (MEMORY[0], said), 1.0)], None)
    assert cause is not None
    lines = render_cause(cause, "r", "clusterctl", 80, "FAILED after 2.0 s   ")
    assert lines[:4] == [
        "FAILED after 2.0 s   rank 0 on gpu01: RuntimeError: The size of tensor a does",
        "    not match.",
        "    RuntimeError: The size of tensor a does not match. It was 3 and must be 4 in",
        "    dimension 1, see the docs",
    ]


def test_eight_ranks_on_two_nodes() -> None:
    """What followed is counted by what was reported, and our own stop is called that."""
    gone = [fail(rank, GONE, 0.9, per_node=4) for rank in range(1, 6)]
    stopped = [fail(rank, (), 1.5, by=15, per_node=4) for rank in (6, 7)]
    lines = screen([fail(0, MEMORY, 1.0, per_node=4), *gone, *stopped], 1.2)

    assert lines[-4:-2] == [
        "    also  r1, r2, r3, r4, r5 on gpu[01-02]: connection closed by peer",
        "          r6, r7 on gpu02: stopped by clusterctl",
    ]
    assert lines[-1] == "    next  clusterctl -i lab.yaml logs r --rank 0"


def test_a_rank_that_failed_by_itself_is_not_called_stopped() -> None:
    """An exit code is reported as one, also when the stop was under way already; 143 and signals are our stop."""
    failed = replace(fail(1, (), 1.2), after_stop=True)
    handled = replace(fail(2, (), 1.3, by=None), exit=143, after_stop=True)
    lines = screen([fail(0, (), 1.0), failed, handled, fail(3, (), 1.3, by=15)], 1.1)

    assert lines[-3:-1] == [
        "    also  r2, r3 on gpu01: stopped by clusterctl",
        "          r1 on gpu01: exit code 1 after the stop",
    ]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("ModuleNotFoundError: No module named 'numpi'", "ModuleNotFoundError: No module named 'numpi'"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to", "OutOfMemoryError"),
        ("RuntimeError: Connection closed by peer [10.0.0.1]:9", "connection closed by peer"),
    ],
)
def test_names_keep_their_case(said: str, shown: str) -> None:
    """A consequence is reported in small letters, but not the name of an exception or a product."""
    words = ("Traceback (most recent call last):", said)
    lines = screen([fail(0, MEMORY, 1.0), fail(1, words, 1.1)], None)

    consequence = next(line for line in lines if "r1 on gpu01:" in line)
    assert consequence.partition("r1 on gpu01: ")[2].startswith(shown)


def test_two_hundred_ranks_take_no_more_lines() -> None:
    """Numbers in the words do not make groups of their own; very many different words are cut off."""
    alike = [
        fail(rank, ("Traceback (most recent call last):", f"ValueError: shard {rank}"), 1.1)
        for rank in range(100)
    ]
    names = [f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(99)]
    different = [
        fail(100 + n, ("Traceback (most recent call last):", f"ValueError: {name}"), 1.1)
        for n, name in enumerate(names)
    ]
    lines = screen([fail(199, MEMORY, 1.0), *alike, *different], None)

    assert len(lines) < 25
    assert "    also  100 ranks on gpu[01-13]: ValueError: shard 0" in lines
    assert "          94 ranks on gpu[14-25]: other messages" in lines


def test_the_only_rank_that_does_not_complain() -> None:
    """199 watchdogs and one silent rank; with several silent ranks they are counted."""
    waiting = [fail(rank, WATCHDOG, 1.0, by=6) for rank in range(199)]
    one = screen([*waiting, fail(199, (), 1.3, by=15)], 1.2)
    several = screen([*waiting[:180], *(fail(rank, (), 1.3, by=15) for rank in range(180, 200))], 1.2)

    assert one[0].startswith(
        "rank 199 on gpu25: the other ranks waited for it until they timed out (ended with the run)"
    )
    assert "    also  199 ranks on gpu[01-25]: watchdog caught collective operation timeout" in one
    assert (
        "    it timed out waiting for one of these, which reported nothing: 20 ranks on gpu[23-25]" in several
    )


@pytest.mark.parametrize(("columns", "colored"), [("80", True), ("30", False)])
def test_the_state_is_the_one_coloured_text(
    monkeypatch: pytest.MonkeyPatch, columns: str, colored: bool
) -> None:
    """On a terminal that has room for it; nothing is written twice where it has not."""
    screen = Screen()
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stderr", screen)
    verdict = replace(judge("r", {}, [fail(0, MEMORY, 1.0)]), attempt=12, attempts=(ATTEMPT,))
    show_verdict(verdict, 11.8, hidden=36)
    first, *rest = screen.getvalue().splitlines()

    assert first.startswith("\x1b[1;31mx FAILED after 11.8 s, 12 attempts\x1b[0m   rank 0") == colored
    assert "\x1b" not in "".join(rest)
    assert screen.getvalue().count("FAILED") == 1
    assert "36 lines of other ranks and of torchrun:" in screen.getvalue()


RUN = "train-20261122T071140-03b1"


def missing(rank: int, path: str) -> Failure:
    """Make a rank that does not find a file."""
    return fail(
        rank,
        (
            "Traceback (most recent call last):",
            f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'",
        ),
        1.0,
    )


def explain_missing(*failures: Failure) -> tuple[str, str]:
    """Return what is shown of a missing file, and the command."""
    cause = find_cause(list(failures), None)
    assert cause is not None
    shown = explain_cause(cause, RUN, "clusterctl -i lab.yaml")
    assert cause_to_json(cause, RUN)["meaning"][1:] in shown.meaning
    return shown.meaning, shown.fix


def test_a_file_that_another_node_has_in_its_output_directory() -> None:
    """Only node 0's rank saved the checkpoint: the other nodes are named, and the command that copies it."""
    path = "/home/me/.clusterctl/outputs/train/out 1/ckpt.pt"
    stopped = Failure("gpu01", 0, None, 15, 2.0)
    meaning, fix = explain_missing(stopped, missing(10, path), missing(20, path))

    assert meaning.startswith(
        "A file of the output directory is missing on gpu[02-03]. Each node has its own"
    )
    assert "the ranks on gpu01 did not miss the file there" in meaning
    assert shlex.split(fix) == [
        *("clusterctl", "-i", "lab.yaml", "cp", "--run", short_id(RUN)),
        *("gpu01:${output_dir}/out 1/ckpt.pt", "gpu[02-03]:${output_dir}/out 1/"),
    ]


@pytest.mark.parametrize(
    "path", ["/data/train.bin", "/w/outputs/other/ckpt.pt", "/w/outputs/train/", "outputs/train/ckpt.pt"]
)
def test_any_other_file_that_is_missing(path: str) -> None:
    """It is data, or another job's, and no node is said to have it."""
    meaning, fix = explain_missing(Failure("gpu01", 0, None, 15, 2.0), missing(10, path))

    assert "Data is not sent with the code" in meaning and fix.endswith(f"exec -- ls -ld {path}")


def test_a_module_that_is_missing_is_tried_with_the_jobs_own_python() -> None:
    """In the run's directory and environment on that node: another interpreter may have it."""
    raised = fail(
        10, ("Traceback (most recent call last):", "ModuleNotFoundError: No module named 'grain'"), 1.0
    )
    assert shlex.split(explain_missing(raised)[1]) == [
        *("clusterctl", "-i", "lab.yaml", "ssh", "gpu02", "--run", short_id(RUN)),
        *("--", "sh", "-c", '"$CLUSTERCTL_PYTHON" -c "import grain"'),
    ]


def test_a_file_of_the_output_directory_that_no_node_has() -> None:
    """With a home that nodes share, or a wrong name, there is nothing to copy."""
    path = "/w/outputs/train/ckpt.pt"
    assert "Data is not sent" in explain_missing(missing(0, path), missing(10, path))[0]


def test_what_a_rank_reports_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters in its words, also where they go into the command, are shown and do nothing."""
    said = (
        "Traceback (most recent call last):",
        "FileNotFoundError: [Errno 2] No such file: '/d\x1b[2J\x07'",
    )
    show_verdict(judge("r", {}, [fail(0, said, 1.0)]), 1.0)
    err = capsys.readouterr().err

    assert "CC-JOB-017" in err
    assert "\x1b" not in err
    assert "\x07" not in err


def test_one_enormous_line_does_not_flood_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """A message of a megabyte is cut wherever it is shown, with the number of characters that are missing."""
    huge = "ValueError: one line " + "x" * 1_000_000
    pieces = [huge[place : place + 262_144] for place in range(0, len(huge), 262_144)]
    raised = fail(0, ("Traceback (most recent call last):", *pieces), 1.0)
    reason = "y" * 100_000
    verdict = judge("r", {}, [raised])
    show_verdict(verdict, 1.0)
    show_verdict(replace(verdict, cause=None, reasons={"gpu01": reason}, after_errors={"gpu02": reason}), 1.0)
    err = capsys.readouterr().err

    assert len(err) < 6000
    (headline,) = [line for line in err.splitlines() if "rank 0 on gpu01" in line]
    assert headline.endswith(f"x [+{262_144 - 400} characters]")
    assert len(json.dumps(verdict_to_json(verdict))) < 8000
    assert max(map(len, raised.tail)) < 1100


def test_what_is_cut_twice_still_shows_how_much_is_missing() -> None:
    """The line was bounded when it was received; the screen shows less of it."""
    once = clip("z" * 5000, 1000)

    assert clip("z" * 1000, 1000) == "z" * 1000
    assert once == "z" * 1000 + " [+4000 characters]"
    assert clip(once, 400) == "z" * 400 + " [+4600 characters]"
    assert clip(once, 1000) == once


def test_several_nodes_are_they(capsys: pytest.CaptureFixture[str]) -> None:
    """Two lost nodes come back in the plural."""
    show_verdict(replace(judge("r", {}, []), state="LOST", away=("gpu01", "gpu02")), 1.0)
    assert "not stopped: gpu[01-02]; when they are back: " in capsys.readouterr().err


def test_another_world_size_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    """A run whose workers saw fewer processes than planned reports it with its code."""
    show_verdict(replace(judge("r", {}, []), world_sizes={"gpu01": (2, 4)}), 1.0)
    assert "warning: gpu01: CC-RUN-051" in capsys.readouterr().err


def test_a_command_against_a_hang_stays_on_one_line() -> None:
    """It is there to be pasted; the words around it are broken."""
    facts = {"ranks": "rank 1 (gpu02)", "waits_in": "nfs_wait", "waiting": "7 ranks wait", "node": "gpu02"}
    kept = KeptDiagnosis("stall", 600.0, Judgement("CC-HANG-002", "", facts), ())
    lines = render_hang(kept, 80, "clusterctl")
    assert any("`clusterctl exec --nodes gpu02 -- 'dmesg | tail -30'`" in line for line in lines)
    assert all(line.startswith("    ") and len(line) <= 80 for line in lines)


def test_the_line_counts_names_and_shows_where() -> None:
    """With the command that downloads them, as long as there is any."""
    parts = {"gpu01": OutsideFiles(2, 13_200_000, ("0.ckpt", "1.ckpt"))}
    assert render_outside_note(parts, "r-1", "clusterctl -i lab.yaml") == [
        "note: 2 files outside ${output_dir}: 0.ckpt, 1.ckpt (13.2 MB) on gpu01",
        "    next: clusterctl -i lab.yaml pull 1 --all",
    ]
    assert render_outside_note({}, "r-1", "clusterctl") == []


def test_many_files_of_many_nodes_are_one_line() -> None:
    """The same names on all nodes are named once; a line break in a name makes no line."""
    one = OutsideFiles(9, 1000, ("a", "b\nc", "d", "e", "f"), more=True)
    parts = {"gpu01": one, "gpu02": one}
    assert render_outside(parts) == (
        "at least 18 files outside ${output_dir}: a, b\\nc, d, ... (2.0 kB) on gpu[01-02]"
    )


def test_the_speed_stands_below_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    """What a process is called cannot act on the terminal; JSON has the same sentence, and null without one."""
    process = BusyProcess("\x1b[31mstress", 7, 4.0)
    speed = SpeedVerdict(
        {"steps/s": 2.4},
        wait=Wait(0.31, 0.31, (5,), ("gpu02",)),
        reason=Reason("process", "gpu02", process=process),
    )
    verdict = replace(judge("r-1", {}, []), speed=speed)
    show_verdict(verdict, 61.2)
    shown = capsys.readouterr().err
    start = "speed: ranks waited 31 % of each step for rank 5 (gpu02), where another program, "
    assert f"\n{start}" in shown and shown.rstrip().endswith("stress (pid 7), uses 4.0 cores; 2.4 steps/s")
    assert "\x1b[31m" not in shown
    entry = verdict_to_json(verdict)["speed"]
    assert entry is not None and entry["sentence"].startswith(start) and entry["reason"] == "process"
    assert verdict_to_json(replace(verdict, speed=None))["speed"] is None
