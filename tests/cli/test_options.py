"""Words for a script or as a command: what is not plainly that is refused; and what shells complete."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import click
import pytest
from waiting import HANG

from clusterctl.cli.context.load import FILE_NAME, MAX_RUNS, known_runs, remember_runs
from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import RawArgumentsCommand
from clusterctl.cli.main import root as clusterctl
from clusterctl.cli.options import (
    COMPLETE_VARIABLE,
    SHELLS,
    complete_job_file,
    completion_script,
    is_confirmed,
    refuse_mixed,
    refuse_surplus,
)
from clusterctl.errors import UsageError
from clusterctl.protocol.run_id import RunId


@click.group()
@click.pass_context
def root(ctx: click.Context) -> None:
    """Stand for clusterctl with an inventory."""
    ctx.obj = Settings(inventory="x.yaml")


@root.command(cls=RawArgumentsCommand)
@click.argument("job")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.option("--set", "values", multiple=True)
def launch(job: str, words: tuple[str, ...], values: tuple[str, ...]) -> list[str]:
    """Take a job and words for its script."""
    refuse_surplus(words, "launch")
    return [job, *values, *words]


@root.command("exec", cls=RawArgumentsCommand)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.option("-v", is_flag=True)
def run(words: tuple[str, ...], v: bool) -> list[str]:
    """Take a command."""
    refuse_mixed(words, "exec")
    return [str(v), *words]


def typed(line: str) -> Sequence[str]:
    """Type a line."""
    shown: Sequence[str] = root.main(line.split(), standalone_mode=False)
    return shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("launch j.yaml", ["j.yaml"]),
        ("launch j.yaml -- a -- b", ["j.yaml", "a", "--", "b"]),
        ("launch --set a -- j.yaml b", ["j.yaml", "a", "b"]),
        ("exec -v nvidia-smi", ["True", "nvidia-smi"]),
        ("exec -- grep -v x", ["False", "grep", "-v", "x"]),
    ],
)
def test_words_in_their_place_arrive(line: str, shown: list[str]) -> None:
    """Those behind `--`, and a command behind which nothing of ours stands."""
    assert typed(line) == shown


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("launch j.yaml extra", "clusterctl -i x.yaml launch j.yaml -- extra"),
        ("launch --set a j.yaml a --set b -- c", "clusterctl -i x.yaml launch --set a j.yaml --set b -- a c"),
        ("launch j.yaml one two -- three", "clusterctl -i x.yaml launch j.yaml -- one two three"),
        ("exec grep -v x", "clusterctl -i x.yaml exec -- grep -v x"),
        ("exec hostname -v", "clusterctl -i x.yaml exec -- hostname -v"),
    ],
)
def test_words_elsewhere_are_refused(line: str, meant: str) -> None:
    """Nothing is passed on or swallowed by accident; the fix can be pasted."""
    with pytest.raises(UsageError) as refused:
        typed(line)
    assert refused.value.code == "CC-USE-092"
    assert refused.value.message.startswith("unexpected ")
    assert meant in refused.value.fix


@pytest.mark.parametrize(
    ("typed", "default", "meant"),
    [
        ("y", False, True),
        ("YES", False, True),
        ("\u662f", False, True),
        ("n", True, False),
        ("\u5426", True, False),
        ("", True, True),
        ("", False, False),
        ("maybe\nn", True, False),
    ],
)
def test_a_question_is_answered_in_either_language(
    typed: str, default: bool, meant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anything else is asked again."""
    monkeypatch.setattr("sys.stdin", StringIO(f"{typed}\n"))
    assert is_confirmed("Stop it?", default=default) is meant


RUN = RunId("train-20261122T071140-03b1")
INVENTORY = "cluster: c\nnodes:\n  - {host: 192.0.2.1, name: alpha}\n  - {host: 192.0.2.2, name: beta}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an inventory, a job and a state directory that has seen one run."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "inventory.yaml").write_text(INVENTORY)
    (tmp_path / "job.yaml").write_text("name: j\nscript: train.py\n")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "state").mkdir(mode=0o700)
    remember_runs([RUN])
    return tmp_path


def complete(folder: Path, *words: str) -> list[str]:
    """Complete the last word as bash does."""
    env = {COMPLETE_VARIABLE: "bash_complete", "COMP_WORDS": " ".join(["clusterctl", *words])}
    done = subprocess.run(
        [sys.executable, "-m", "clusterctl"],
        cwd=folder,
        env={**os.environ, **env, "COMP_CWORD": str(len(words))},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line.strip()]


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["la"], ["lab", "launch"]),
        (["lab", "u"], ["up"]),
        (["logs", "--gr"], ["--grep"]),
        (["logs", "tr"], [RUN]),
        (["stop", ""], [RUN]),
        (["stop", "--warm", "a"], ["alpha"]),
        (["cp", "al"], ["alpha:"]),
        (["launch", "jo"], ["job.yaml", "jobs/"]),
        (["exec", "--nodes", "a"], ["alpha"]),
        (["-i", "inventory.yaml", "top", "--exclude", "b"], ["beta"]),
        (["explain", "CC-NET-01"], [f"CC-NET-01{number}" for number in range(10)]),
        (["completion", "z"], ["zsh"]),
        (["lunch", "jo"], []),
        (["lab", "upp", "x"], []),
    ],
)
def test_values(folder: Path, words: list[str], values: list[str]) -> None:
    """Verbs, options, runs, files, nodes, codes; of a misspelled verb nothing, and no error beside the user's line."""
    assert sorted(complete(folder, *words)) == sorted(values)


@pytest.mark.process
@pytest.mark.parametrize("words", [["exec", "--nodes", ""], ["logs", ""]])
def test_what_cannot_be_read_completes_to_nothing(folder: Path, words: list[str]) -> None:
    """A broken inventory or a strange state directory prints nothing into the user's line."""
    (folder / "inventory.yaml").write_text("nodes: [")
    (folder / "state" / "clusterctl" / FILE_NAME).unlink()
    (folder / "state" / "clusterctl" / FILE_NAME).symlink_to("/etc/passwd")

    assert complete(folder, *words) == []


@pytest.mark.process
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("program", ["clusterctl", "cctl"])
def test_the_script_works_in_bash(folder: Path, program: str) -> None:
    """The script is evaluated by a real bash, and its function fills COMPREPLY, for both names."""
    (folder / "bin").mkdir()
    for name in ("clusterctl", "cctl"):
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m clusterctl "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    script = f"""
        eval "$(clusterctl completion bash)"
        complete -p {program} >/dev/null || exit 9
        COMP_WORDS=({program} lau); COMP_CWORD=1
        $(complete -p {program} | sed 's/.*-F \\([^ ]*\\).*/\\1/') {program}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )
    assert (done.returncode, done.stdout) == (0, "launch\n"), done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_for_both_names(shell: str) -> None:
    """It calls us back with click's variable."""
    script = completion_script(clusterctl, shell)
    assert f"{COMPLETE_VARIABLE}={shell}_complete" in script
    assert "cctl" in script


@pytest.mark.parametrize("name", ["$(reboot).yaml", "two words.yaml", "*.yaml", "a\nb.yaml", "\x1b[2Jc.yaml"])
def test_a_name_that_must_be_quoted_is_left_to_the_shell(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A completed value stands in the user's line as it is printed: this one would run, or be several words."""
    monkeypatch.chdir(folder)
    (folder / name).touch()
    context, parameter = click.Context(clusterctl), click.Argument(["job_file"])

    assert [(item.value, item.type) for item in complete_job_file(context, parameter, "")] == [("", "file")]
    assert [item.value for item in complete_job_file(context, parameter, "jo")] == ["job.yaml", "jobs/"]
    assert [item.type for item in complete_job_file(context, parameter, "~/jo")] == ["file"]


def test_known_runs_are_bounded_newest_first_and_only_run_ids(folder: Path) -> None:
    """What a node calls its runs has been read before; here a line that is none is dropped."""
    many = [RunId(f"j-20261122T{number:06d}-03b1") for number in range(MAX_RUNS + 50)]
    remember_runs(many)
    assert known_runs() == [RUN, *sorted(many, reverse=True)][:MAX_RUNS]

    file = folder / "state" / "clusterctl" / FILE_NAME
    file.write_text(f"../../etc\n{RUN}\n$(reboot)\n")
    assert known_runs() == [RUN]
    file.write_bytes(b"\xff\xfe")
    assert known_runs() == []
