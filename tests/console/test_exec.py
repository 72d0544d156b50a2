"""What many nodes reported is shown once, and does no harm to the terminal."""

from __future__ import annotations

import pytest

from clusterctl.cli.actions.remote import build_argv, exit_code
from clusterctl.client.rpc.tasks import CommandEnd, CommandOutput, parse_command_end
from clusterctl.console.exec import LinePrinter, answers_to_json, show_answers
from clusterctl.protocol.untrusted import Untrusted

OK = CommandEnd(0, None)


def said(stdout: str, stderr: str = "", ended: CommandEnd = OK) -> CommandOutput:
    """Make an answer."""
    return CommandOutput(stdout.encode(), stderr.encode(), ended)


def test_equal_answers_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes of a group are folded, and groups stand in the order of their first node."""
    answers = {f"gpu{n:02}": said("a\nb\n") for n in (1, 2, 3, 5)} | {
        "gpu04": said("c\n", "x\n", CommandEnd(2, None))
    }
    show_answers(answers, 1024)
    seen = capsys.readouterr()
    assert seen.out == "gpu[01-03,05] (4 nodes)\na\nb\ngpu04: exit 2\nc\n"
    assert seen.err == "! x\n"


def test_one_line_each_is_one_line_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    """Short answers stay short."""
    show_answers({"a1": said("x\n"), "a2": said("y\n"), "a3": said("x\n")}, 1024)
    assert capsys.readouterr().out == "a[1,3]: x\na2: y\n"


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Folded or not, in both streams."""
    evil = "\x1b]0;title\x07\x1b[2Jtext\u202e\n"
    show_answers({"a1": said(evil), "a2": said(evil, evil)}, 1024)
    printer = LinePrinter(["a1"], as_json=False)
    printer.on_output("a1", "stderr", evil.encode())
    seen = capsys.readouterr()
    assert not set("\x1b\x07\u202e") & set(seen.out + seen.err)
    assert seen.out.endswith("a1 ! text\n")


def test_lines_are_whole_however_they_arrive(capsys: pytest.CaptureFixture[str]) -> None:
    """Pieces are put together; what had no newline comes at the end."""
    printer = LinePrinter(["a1", "long"], as_json=False)
    for piece in (b"on", b"e\ntw", b"o"):
        printer.on_output("a1", "stdout", piece)
    printer.on_exit("a1", CommandEnd(None, 9))
    seen = capsys.readouterr()
    assert seen.out == "a1   | one\na1   | two\n"
    assert seen.err == "a1   ! SIGKILL\n"


def test_json_has_every_node() -> None:
    """Also the one that could not be asked."""
    nodes = answers_to_json({"a1": said("x")}, {"a2": "CC-SSH-002 closed"}, ["a1", "a2"])["nodes"]
    assert [(node["node"], node["exit"], node["stdout"], node["error"]) for node in nodes] == [
        ("a1", 0, "x", None),
        ("a2", None, "", "CC-SSH-002 closed"),
    ]


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        (["hostname"], ["hostname"]),
        (["ls", "a b"], ["ls", "a b"]),
        (["ls | wc"], ["/bin/sh", "-c", "ls | wc"]),
        (["echo $HOME"], ["/bin/sh", "-c", "echo $HOME"]),
        (["~/x"], ["/bin/sh", "-c", "~/x"]),
    ],
)
def test_one_word_may_be_a_line_of_shell(words: list[str], argv: list[str]) -> None:
    """Several words never meet a shell."""
    assert build_argv(words) == argv


@pytest.mark.parametrize(
    ("answers", "failed", "code"),
    [
        ([OK], 0, 0),
        ([OK], 1, 5),
        ([], 2, 4),
        ([OK, CommandEnd(1, None)], 0, 1),
        ([CommandEnd(None, 9)], 1, 1),
    ],
)
def test_exit_codes(answers: list[CommandEnd], failed: int, code: int) -> None:
    """A command that failed counts before a node that was not reached."""
    assert exit_code([said("", "", ended) for ended in answers], failed) == code


def test_an_ending_is_read_with_distrust() -> None:
    """Nonsense is an ending too, and no good one."""
    assert parse_command_end(
        Untrusted({"exit": "0", "signal": True, "cut": "stdout", "left": 3})
    ) == CommandEnd(255, None, ())


def test_what_runs_on_is_reported_once_for_equal_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, also where the answers are one line each, and for lines as they come."""
    answers = {
        name: CommandOutput(b"up\n", b"", CommandEnd(0, None, still_running=("sleep", "x\x1b[2J")))
        for name in ("a1", "a2")
    }
    show_answers(answers, 1024)
    folded = capsys.readouterr()
    LinePrinter(["a1"], as_json=False).on_exit("a1", CommandEnd(0, None, still_running=("sleep",)))

    assert folded.out == "a[1-2]: up\n"
    assert folded.err == "a[1-2]: still running in the background: sleep, x\n"
    assert capsys.readouterr().err == "a1: still running in the background: sleep\n"
