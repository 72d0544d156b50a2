"""What a job says, source text kept."""

from __future__ import annotations

from textwrap import dedent

import pytest

from clusterctl.errors import Location, SpecError
from clusterctl.specs.job.model import Job, Notify, OnEnd, Restart, Sync
from clusterctl.specs.job.parse import parse_job


def parse(text: str, *overrides: tuple[str, str]) -> Job:
    """Read a job that needs no name and no script of its own."""
    return parse_job(f"name: a\nscript: a.py\n{dedent(text)}", "job.yaml", overrides)


def test_the_least_job_has_every_default() -> None:
    """A name and a script are enough."""
    assert parse_job("name: a\nscript: a.py\n", "job.yaml") == Job(
        name="a",
        file="job.yaml",
        script="a.py",
        module=None,
        args=(),
        nproc_per_node="gpu",
        nodes="all",
        launcher="torchrun",
        backend="nccl",
        env={},
        secrets=(),
        sync=Sync(source=".", exclude=()),
        grace=30.0,
        python=None,
        activate=None,
    )


@pytest.mark.parametrize(
    ("text", "start", "seconds"),
    [
        ("keep_warm: 15m", "fork", 900.0),
        ("keep_warm: 1h\nstart: fork", "fork", 3600.0),
        ("keep_warm: 0", "exec", None),
        ("keep_warm: 0\nstart: exec", "exec", None),
        ("keep_warm: null", "exec", None),
    ],
)
def test_keep_warm_chooses_how_workers_start(text: str, start: str, seconds: float | None) -> None:
    """Unless the job does; 0 takes it away again."""
    assert (parse(text).start, parse(text).keep_warm) == (start, seconds)


def test_the_launchers() -> None:
    """A command with its arguments; torch.distributed.launch in the way of old scripts and of newer ones."""
    command = parse_job("name: a\nlauncher: command\ncommand: [./go.sh, 1e-4]\ngpus: [1, 0]", "job.yaml")

    assert (command.command, command.gpus, command.is_single_process) == (("./go.sh", "1e-4"), (1, 0), True)
    assert parse("launcher: python").is_single_process
    assert not parse("launcher: launch").is_single_process
    assert [parse(f"launcher: launch\nuse_env: {word}").use_env for word in ("true", "false")] == [
        True,
        False,
    ]


def test_a_full_job() -> None:
    """Every key arrives."""
    job = parse_job(
        dedent("""
            name: mnist-ddp
            module: pkg.train
            args: [--epochs, "3"]
            nproc_per_node: 2
            nodes: gpu[01-02]
            launcher: torchrun
            backend: gloo
            env: {NCCL_DEBUG: INFO}
            secrets: [WANDB_API_KEY]
            sync: {source: .., exclude: [data/, "*.pt"]}
            grace: 1m
            python: python3.11
            activate: source env.sh
            """),
        "job.yaml",
    )

    assert job == Job(
        name="mnist-ddp",
        file="job.yaml",
        module="pkg.train",
        args=("--epochs", "3"),
        nproc_per_node=2,
        nodes="gpu[01-02]",
        backend="gloo",
        env={"NCCL_DEBUG": "INFO"},
        secrets=("WANDB_API_KEY",),
        sync=Sync(source="..", exclude=("data/", "*.pt")),
        grace=60.0,
        python="python3.11",
        activate="source env.sh",
    )


def test_what_happens_at_the_end() -> None:
    """One word for `when` is enough; without it every end counts."""
    job = parse("on_end: {command: [./t.sh, 1e-4], when: failed}\nnotify: [{to: slack, url_from: U}]\n")

    assert job.on_end == OnEnd(command=("./t.sh", "1e-4"), when=("failed",), time_limit=60.0)
    assert job.notify == (Notify(to="slack", url_from="U", secret_from=None, when=()),)
    assert (
        parse("notify: [{to: feishu, url_from: U, secret_from: null, when: null}]\n").notify[0].secret_from
        is None
    )


TEXTS = [
    ("1e-4", "1e-4"),
    ("true", "true"),
    ("no", "no"),
    ("1_0", "1_0"),
    ("007", "007"),
    ("12:30:00", "12:30:00"),
    ("2026-11-20", "2026-11-20"),
    (".5", ".5"),
    ("+1", "+1"),
    ("0x1F", "0x1F"),
    ("''", ""),
    ("'null'", "null"),
    ("--lr=1e-4", "--lr=1e-4"),
    ("a b  c", "a b  c"),
    ('"a\\nb\\t\\u00e9"', "a\nb\té"),
    ("'it''s'", "it's"),
    ("$HOME", "$HOME"),
    ("'$(reboot)'", "$(reboot)"),
    ("ünïcode \N{GRINNING FACE}", "ünïcode \N{GRINNING FACE}"),
    ("'{\"a\": [1, 2]}'", '{"a": [1, 2]}'),
    ("'${run_id}'", "${run_id}"),
    ("'$${x}'", "$${x}"),
]


@pytest.mark.parametrize(("written", "text"), TEXTS)
def test_args_and_env_keep_their_text(written: str, text: str) -> None:
    """Nothing is read as a number, a date or a truth."""
    job = parse(f"args:\n  - {written}\nenv:\n  A: {written}\n")

    assert job.args == (text,)
    assert job.env == {"A": text}


def test_blocks_of_text() -> None:
    """Literal blocks keep their lines, folded ones join them."""
    job = parse("args:\n  - |\n    one\n      two\n  - >-\n    three\n    four\n")

    assert job.args == ("one\n  two\n", "three four")


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30s", 30),
        ("90", 90),
        ("0", 0),
        ("0.5", 0.5),
        ("1.5s", 1.5),
        ("2m", 120),
        ("12h", 43200),
        ("1h30m", 5400),
        ("1d", 86400),
        ("1d2h3m4s", 93784),
        ("'10'", 10),
        ("1h30", 3630),
    ],
)
def test_times(written: str, seconds: float) -> None:
    """A time is a float in seconds."""
    grace = parse(f"grace: {written}\n").grace

    assert (grace, type(grace)) == (seconds, float)


@pytest.mark.parametrize(
    ("written", "nodes"),
    [
        ("all", "all"),
        ("2", 2),
        ("'2'", 2),
        ("0-3", "0-3"),
        ("'1,'", "1,"),
        ("gpu[01-04,07]", "gpu[01-04,07]"),
        ("gpu*", "gpu*"),
        ("a, b", "a, b"),
    ],
)
def test_nodes_are_a_count_or_a_pattern(written: str, nodes: int | str) -> None:
    """A bare number counts nodes."""
    assert parse(f"nodes: {written}\n").nodes == nodes


@pytest.mark.parametrize(("written", "nproc"), [("gpu", "gpu"), ("cpu", "cpu"), ("1", 1), ("'16'", 16)])
def test_workers_on_each_node(written: str, nproc: int | str) -> None:
    """A word or a number."""
    assert parse(f"nproc_per_node: {written}\n").nproc_per_node == nproc


@pytest.mark.parametrize(
    "script", ["train.py", "src/train.py", "./-odd.py", "/opt/jobs/train.py", "my train.py"]
)
def test_scripts(script: str) -> None:
    """Inside the source, or absolute."""
    assert parse_job(f"name: a\nscript: {script}\n", "job.yaml").script == script


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        (("nodes", "2"), "nodes", 2),
        (("name", "b"), "name", "b"),
        (("args", "[--lr, 1e-4]"), "args", ("--lr", "1e-4")),
        (("args", "[]"), "args", ()),
        (("env.B", "x: y # z"), "env", {"A": "1", "B": "x: y # z"}),
        (("env.A", ""), "env", {"A": ""}),
        (("env.A", "'null'"), "env", {"A": "null"}),
        (("env.A", "*x"), "env", {"A": "*x"}),
        (("env", "{C: 2}"), "env", {"C": "2"}),
        (("sync.exclude", "[data/]"), "sync", Sync(exclude=("data/",))),
        (("secrets", '["T"]'), "secrets", ("T",)),
        (("grace", "5s"), "grace", 5.0),
        (("time_limit", "30m"), "time_limit", 1800.0),
        (("time_limit", "null"), "time_limit", None),
    ],
)
def test_values_from_the_command_line(override: tuple[str, str], key: str, value: object) -> None:
    """`--set` replaces one key of the file, or adds it; only [ { and quotes begin YAML."""
    assert getattr(parse("env: {A: 1}\n", override), key) == value


def test_the_last_value_from_the_command_line_wins() -> None:
    """As with options everywhere."""
    job = parse("", ("env", "{A: 1}"), ("env.B", "2"), ("env.A", "3"), ("env.A", "4"))

    assert job.env == {"A": "4", "B": "2"}


def test_a_script_can_be_put_in_from_the_command_line() -> None:
    """What the file lacks, the command line may bring."""
    assert parse_job("name: a\n", "job.yaml", [("script", "b.py")]).script == "b.py"


@pytest.mark.parametrize("override", [("args", '["\udcc3\udcb6"]'), ("env.A", "\udcc3")])
def test_a_byte_that_the_locale_cannot_read_is_called_that(override: tuple[str, str]) -> None:
    """Under a locale that is not UTF-8 the characters are fine, and the terminal is not."""
    with pytest.raises(SpecError) as caught:
        parse("", override)

    (issue,) = caught.value.issues
    assert (issue.code, issue.location) == (
        "CC-SPEC-002",
        Location("--set", 1, len(override[0]) + override[1].index("\udcc3") + 2),
    )
    assert "0xc3" in issue.message and "locale is not UTF-8" in issue.message
    assert "LC_ALL=C.UTF-8" in issue.fix and "remove" not in issue.fix


def test_restarts() -> None:
    """Every key of it arrives; an empty one means the usual reasons; null takes it away."""
    restart = parse("restart: {max: 5, on: [node_lost, gpu], spares: 2, progress: '*.pt'}").restart

    assert restart == Restart(max=5, on=("node_lost", "gpu"), spares=2, progress="*.pt")
    assert parse("restart: {}").restart == Restart()
    assert parse("restart: {spares: 1}", ("restart", "null")).restart is None
    assert parse("", ("restart.spares", "1")).restart == Restart(spares=1)


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("gpus: 2", "gpus: [0, 1]"),
        ("launcher: command\ncommand: ./go.sh --lr 1e-4 $X", "command: [./go.sh, --lr, 1e-4, '$X']"),
        ("args: " + "a " * 40, "args: [" + "a, " * 16 + "...]"),
        ("gpus: many", "gpus: [many]"),
    ],
)
def test_a_text_where_a_list_belongs_is_shown_as_one(line: str, fix: str) -> None:
    """The way out is a line that can be pasted."""
    program = "" if "command" in line else "script: t.py\n"
    with pytest.raises(SpecError) as caught:
        parse_job(f"name: j\n{program}{line}\n", "job.yaml")
    assert [issue.fix for issue in caught.value.issues] == [fix]
