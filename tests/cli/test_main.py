"""The command line without any node: verbs, wrong words, which inventory, how errors look."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from typed import run
from waiting import HANG

from clusterctl.cli.context.nodes import as_bug, write_bug_report
from clusterctl.cli.main import VERBS, root
from clusterctl.cli.main import run as main
from clusterctl.client.rpc.errors import node_error
from clusterctl.protocol.untrusted import Untrusted

COMMAND = [sys.executable, "-m", "clusterctl"]
INVENTORY = "cluster: c\nnodes:\n  - {host: 192.0.2.1, name: one, nic: eth0, gpus: 2}\n"
JOB = "name: j\nscript: train.py\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with an inventory and a job."""
    (tmp_path / "inventory.yaml").write_text(INVENTORY)
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "train.py").write_text("")
    return tmp_path


@pytest.mark.parametrize("verb", [["ps"], ["launch", "job.yaml", "--dry-run"], ["lab", "status"]])
def test_a_state_directory_that_others_can_write_to_is_refused(folder: Path, verb: list[str]) -> None:
    """Before anything in it is believed: no hook, no inventory of a lab; nothing is written there."""
    (folder / "state").mkdir()
    (folder / "state").chmod(0o777)
    done = run(folder, *verb, COLUMNS="80")

    assert (done.returncode, done.stdout) == (2, "")
    assert f"error CC-USE-041: {folder / 'state'} can be written by other users (mode 0777)" in done.stderr
    assert "fix: set XDG_STATE_HOME" in done.stderr
    assert not list((folder / "state").iterdir())


def test_the_report_of_a_bug_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback of 64 MiB from a node costs a few kilobytes here, without what a terminal acts on."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    trace = "Traceback\n" + "\x1b]52;c;YQ==\x07\u202e" * 70_000 + "\nValueError: the end\n"
    for _ in range(50):
        error = node_error(
            "gpu01", Untrusted({"code": "CC-RUN-002", "message": "\x9d\n" * 9_000, "traceback": trace})
        )
        bug = write_bug_report(error)
        mine = as_bug(ValueError("\x1b]0;x\x07" * 300_000))
    (crash,) = (folder / "state" / "clusterctl" / "crashes").iterdir()

    assert (bug.code, bug.evidence, bug.node) == ("CC-BUG-001", "", "gpu01")
    assert (len(bug.message) < 8_000, len(mine.message) < 8_000) == (True, True)
    text = crash.read_text()
    assert len(text) < 1 << 21
    assert "characters are left out]" in text
    assert "ValueError: the end" in text
    assert not [c for c in text + bug.message + mine.message if not (c.isprintable() or c == "\n")]


@pytest.mark.parametrize("code", ["", None, 7, "CC-RUN-014 \x1b[2J", "x" * 10_000, ["CC-PY-001"]])
def test_an_error_of_a_node_reports_what_it_may(code: object) -> None:
    """Its code is one of ours, and its message one bounded line that no terminal acts on."""
    error = node_error(
        "gpu01", Untrusted({"code": code, "message": "a\nb\x1b[2J\u202e" * 10_000, "traceback": None})
    )

    assert (error.code, error.node, error.evidence) == ("CC-RUN-002", "gpu01", "")
    assert error.message.isprintable()
    assert len(error.message) < 8_000


def test_a_launch_reports_what_it_will_run_here_before_it_does_anything(folder: Path) -> None:
    """Even one that fails at once; what a terminal would hide is shown."""
    (folder / "job.yaml").write_text(
        f'{JOB}on_end: {{command: [sh, "-c", "id \\e[8m"]}}\nsecrets: [NOT_SET_HERE]\n'
    )
    done = run(folder, "launch", "job.yaml", COLUMNS="80")

    assert done.returncode == 2
    assert done.stderr.startswith(
        "will run here when it ends: sh -c 'id \\x1b[8m'\n", done.stderr.index("will")
    )
    assert done.stderr.index("will run here") < done.stderr.index("NOT_SET_HERE")
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["chek"], 2, "did you mean 'check'?"),
        (["launch", "--set", "nodes=9"], 2, "the job needs 9 nodes"),
        (["launch", "--set", "nodes=9", "--", "--epochs", "3"], 2, "the job needs 9 nodes"),
        (["launch", "--foo", "job.yaml"], 2, "--foo"),
        (["launch", "none.yaml"], 2, "CC-SPEC-007"),
        (["-i", "none.yaml", "ps"], 2, "none.yaml"),
        (["launch", "job.yaml", "--set", "nodes"], 2, "expected KEY=VALUE"),
        (["launch", "job.yaml", "--set", "nods=1"], 2, "nodes"),
        (["launch", "job.yaml", "--nodes", "two", "--dry-run"], 2, "CC-USE-012"),
        (["launch", "job.yaml", "--exclude", "one", "--dry-run"], 2, "CC-USE-004"),
        (["launch", "job.yaml", "--set", "nodes=3", "--dry-run"], 2, "needs 3 nodes, 1 are available"),
        (["logs", "--grep", "("], 2, "CC-USE-026"),
        (["logs", "--grep", "(a+)+$"], 2, "a repetition within a repetition"),
        (["logs", "--tail", "-1"], 2, "--tail"),
        (["exec", "uptime", "-p"], 2, "options for the command go after `--`"),
        (["clean", "--older-than", "10"], 2, "--older-than 10d"),
        (["logs", "--tail", "x"], 2, "Invalid value for '--tail': 'x' is not a number of lines"),
        (["logs", "--rank", "-x"], 2, "Invalid value for '--rank': '-x' is not a rank"),
        (["stop", "--grace", "soon"], 2, "'soon' is not a number of seconds"),
        (["check", "--nodes", "7"], 2, "fix: the nodes are one"),
        (["check", "--set", "nodes=9"], 2, "the job needs 9 nodes"),
        (["check", "job.yaml", "--set", "nodes=9"], 2, "the job needs 9 nodes"),
        (["check", "job.yaml", "--set", "nodes"], 2, "CC-USE-003"),
        (["lab", "down", "--name", "nope"], 2, "CC-LAB-005: no lab with the name nope is running"),
        (["lab", "down", "--name", "one", "--all"], 2, "--all stops all labs, --name one lab"),
        (["lab", "list"], 2, "no verb 'lab list'; did you mean 'lab status'?"),
        (["lab", "destroy"], 2, "no verb 'lab destroy'; available: up, down, "),
        (["lab", "dwn"], 2, "no verb 'lab dwn'; did you mean 'lab down'?"),
        (["inventory", "list"], 2, "no verb 'inventory list'; available: show"),
        (["keys", "install"], 2, "no verb 'keys install'; available: push"),
        (["lab", "break", "gpu01", "power"], 2, "CC-LAB-005"),
    ],
)
def test_wrong_words_say_what_is_wrong_and_exit_2(
    folder: Path, args: list[str], code: int, said: str
) -> None:
    """One clear error with a code and a way out; never a traceback."""
    done = run(folder, *args)

    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "CC-" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("words", [[], ["--all"]])
def test_no_lab_that_was_named_is_missing(folder: Path, words: list[str]) -> None:
    """`lab down` may be repeated: only a name that no lab has is an error."""
    done = run(folder, "lab", "down", *words)

    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("no lab ")


def test_an_option_without_its_value_leads_to_the_help_of_its_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every option of every verb that takes a value, last on the line: the `--help` that describes it is named."""
    missing = [(path, option) for path, options in options_with_values(root, ()) for option in options]
    assert {path[0] for path, _ in missing if path} == set(VERBS)

    for path, option in missing:
        assert main([*path, option]) == 2
        err = capsys.readouterr().err
        assert f"Option '{option}' requires an argument." in err
        assert re.search(rf"fix: see `[^`]+{''.join(f' {word}' for word in path)} --help`\n", err), err


def options_with_values(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield every command below one, its words, and its options that need a value."""
    options = [one for one in command.params if isinstance(one, click.Option)]
    needing = [one for one in options if not (one.is_flag or one.count or isinstance(one.flag_value, str))]
    yield path, [name for one in needing for name in one.opts]
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            yield from options_with_values(below, (*path, name))


def test_all_errors_of_a_file_come_at_once_with_their_places(folder: Path) -> None:
    """Three mistakes, three lines, each with file:line:column."""
    (folder / "job.yaml").write_text(
        "name: j\nscrpt: t.py\nnproc_per_node: four\nenv: {RANK: 1}\nscript: t.py\n"
    )

    done = run(folder, "launch", "job.yaml")

    assert done.returncode == 2
    places = [line.split(": ")[0] for line in done.stderr.splitlines() if line.startswith("job.yaml:")]
    assert places == ["job.yaml:2:1", "job.yaml:3:17", "job.yaml:4:7"]
    assert "did you mean 'script'" in done.stderr


def test_a_script_or_swapped_files_are_called_that(folder: Path) -> None:
    """Not a list of unknown keys; the fix names the command that writes a job for the script."""
    (folder / "train.py").write_text("import torch\nif True:\n    print(1)\n")
    script = run(folder, "sync", "train.py")
    swapped = run(folder, "-i", "job.yaml", "launch", "inventory.yaml", "--dry-run")

    assert (script.returncode, swapped.returncode) == (2, 2)
    assert "train.py:1:1: CC-SPEC-008 this looks like a Python script" in script.stderr
    assert "`clusterctl init --script train.py` writes a job file" in script.stderr
    assert "inventory.yaml:1:1: CC-SPEC-008 this is an inventory; expected a job file" in swapped.stderr
    assert "clusterctl -i inventory.yaml VERB JOB.yaml" in swapped.stderr
    assert "unknown key" not in swapped.stderr


def test_a_file_that_is_not_text_names_the_line(folder: Path) -> None:
    """Bytes that are not UTF-8 are an error with a line, not a traceback."""
    (folder / "job.yaml").write_bytes(b"name: j\nscript: \xff\xfe\n")

    done = run(folder, "launch", "job.yaml")

    assert (done.returncode, "job.yaml:2: not UTF-8" in done.stderr) == (2, True)


def test_shared_options_work_on_both_sides_of_the_verb(folder: Path) -> None:
    """`-i` before or after; the later one wins; -q silences what is no result."""
    other = folder / "other.yaml"
    other.write_text(INVENTORY.replace("one", "two"))

    before = run(folder, "-q", "-i", "other.yaml", "inventory", "show", "--json")
    after = run(folder, "-i", "inventory.yaml", "inventory", "show", "--json", "-q", "-i", "other.yaml")

    for done in (before, after):
        assert json.loads(done.stdout)["nodes"][0]["name"] == "two", done.stderr
        assert done.stderr == ""


def test_code_from_elsewhere_is_announced_before_anything_is_sent(folder: Path) -> None:
    """A job of another person can name any directory; what lies below its own is no news."""
    (folder / "secret").mkdir()
    (folder / "secret" / "train.py").write_text("")
    below = folder / "below"
    (below / "code" / ".ssh").mkdir(parents=True)
    (below / "code" / ".ssh" / "id_rsa").write_text("")
    (below / "code" / "train.py").write_text("")
    shown = {}
    for source in (".", "code", "../secret"):
        (below / "job.yaml").write_text(f"{JOB}sync: {{source: {source}}}\n")
        (below / "train.py").write_text("")
        done = run(folder, "launch", "below/job.yaml", "--dry-run")
        assert done.returncode == 0, done.stderr
        shown[source] = [line for line in done.stderr.splitlines() if "will send" in line]
    assert [len(lines) for lines in shown.values()] == [1, 1, 1]
    assert f".ssh of {below}" in shown["."][0]
    assert f".ssh of {below / 'code'}" in shown["code"][0]
    assert f"{folder / 'secret'} (outside of the job's directory)" in shown["../secret"][0]
    (below / "code" / ".ssh" / "id_rsa").unlink()
    (below / "code" / ".ssh").rmdir()
    (below / "job.yaml").write_text(f"{JOB}sync: {{source: code}}\n")
    assert "will send" not in run(folder, "launch", "below/job.yaml", "--dry-run").stderr


def test_the_inventory_is_chosen_in_the_documented_order(folder: Path) -> None:
    """-i, then CLUSTERCTL_INVENTORY, then ./inventory.yaml; stderr reports any but the last; none is an error."""
    other = folder / "other.yaml"
    other.write_text(INVENTORY)
    empty = folder / "empty"
    empty.mkdir()

    here = run(folder, "inventory", "show")
    assert (here.returncode, here.stderr) == (0, "")
    assert "CLUSTERCTL_INVENTORY" in run(folder, "inventory", "show", CLUSTERCTL_INVENTORY=str(other)).stderr
    assert (
        "given by -i" in run(folder, "-i", str(other), "inventory", "show", CLUSTERCTL_INVENTORY="x").stderr
    )
    nothing = run(empty, "inventory", "show")
    assert (nothing.returncode, "CC-USE-002" in nothing.stderr) == (2, True)
    assert "`clusterctl init HOST...`" in nothing.stderr
    (empty / "inventory.yml").write_text(INVENTORY)
    other_ending = run(empty, "inventory", "show")
    assert (other_ending.returncode, "clusterctl -i inventory.yml" in other_ending.stderr) == (2, True)


def test_hosts_stand_for_an_inventory(folder: Path) -> None:
    """Any verb takes `--hosts`; two choices at once are refused, and hints name the machines as they were given."""
    listed = run(folder, "--hosts", "gpu[01-02],me@10.0.0.3:2222", "inventory", "show", "--json")
    both = run(folder, "-i", "inventory.yaml", "ps", "--hosts", "gpu01")
    wrong = run(folder, "--hosts", "gpu[01", "ps")

    nodes = json.loads(listed.stdout)["nodes"]
    assert [(node["host"], node["user"], node["port"]) for node in nodes] == [
        ("gpu01", None, None),
        ("gpu02", None, None),
        ("10.0.0.3", "me", 2222),
    ]
    assert "inventory: gpu[01-02],me@10.0.0.3:2222 (given by --hosts), 3 nodes" in listed.stderr
    assert (both.returncode, "remove -i inventory.yaml or --hosts gpu01" in both.stderr) == (2, True)
    assert (wrong.returncode, "'[' is not closed" in wrong.stderr) == (2, True)


def test_without_a_job_file_there_is_nothing_to_launch(folder: Path) -> None:
    """`check` then looks at the nodes alone, and takes no changes to a job; `launch` names what would help."""
    (folder / "job.yaml").unlink()
    launched, changed = run(folder, "launch", "--", "--epochs", "3"), run(folder, "check", "--set", "nodes=1")

    assert (launched.returncode, "CC-USE-009" in launched.stderr) == (2, True)
    assert "clusterctl launch SCRIPT.py" in launched.stderr
    assert (changed.returncode, "give JOB.yaml too" in changed.stderr) == (2, True)


def test_a_hostfile_is_an_inventory(folder: Path) -> None:
    """DeepSpeed's, MPI's, a list of hosts; for Ansible's and ssh's files the command that reads them is shown."""
    texts = {
        "deepspeed": "gpu01 slots=8\ngpu02 slots=8\n",
        "mpi": "gpu01:8\ngpu02:8\n",
        "list": "gpu[01-02]  # both\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
        shown = json.loads(run(folder, "-i", name, "inventory", "show", "--json").stdout)
        assert [node["host"] for node in shown["nodes"]] == ["gpu01", "gpu02"], name
    for name, text in (("hosts.ini", "[gpu]\na ansible_host=10.0.0.1\n"), ("config", "Host a\n  Port 22\n")):
        (folder / name).write_text(text)
        refused = run(folder, "-i", name, "ps")
        assert (refused.returncode, f"`clusterctl init --from {name}`" in refused.stderr) == (2, True)


def test_a_wrong_line_is_shown_with_a_mark(folder: Path) -> None:
    """Also of a long line, and behind wide characters; what is missing in a whole file has no line."""
    (folder / "job.yaml").write_text(
        "name: j\nenv: {甲: 乙, RANK: 0}\n" + f"args: [{'a, ' * 60}'${{nope}}']\n"
    )
    error = run(folder, "launch").stderr.splitlines()

    rank = next(index for index, line in enumerate(error) if "RANK is set by torchrun" in line)
    assert error[rank + 1 : rank + 3] == ["    2 | env: {甲: 乙, RANK: 0}", "      |               ^"]
    long = next(index for index, line in enumerate(error) if "unknown placeholder" in line)
    assert len(error[long + 1]) <= 80 and error[long + 2].endswith("^")
    mark = error[long + 2].index("^")
    assert error[long + 1][mark : mark + 7] == "${nope}"
    whole = next(index for index, line in enumerate(error) if "none of script, module" in line)
    assert error[whole + 1].startswith("    fix: ")


def test_an_option_of_the_script_is_put_behind_dashes(folder: Path) -> None:
    """Its value too; options of ours stay where they were."""
    wrong = run(folder, "launch", "job.yaml", "--epochs", "3", "--nodes", "one")

    assert wrong.returncode == 2
    assert "fix: " in wrong.stderr and "launch job.yaml --nodes one -- --epochs 3, if it is" in wrong.stderr


def test_a_script_needs_no_job_file(folder: Path) -> None:
    """The job is made from what the script shows, and shown; the code is this directory's, or else the script's."""
    (folder / "src").mkdir()
    (folder / "src" / "fit.py").write_text("p.add_argument('--save', default='m.pt')\n")
    inside = run(folder, "launch", "src/fit.py", "--dry-run", "--", "--epochs", "3")
    other = folder / "elsewhere"
    other.mkdir()
    outside = run(other, "-i", "../inventory.yaml", "launch", "../src/fit.py", "--dry-run")

    assert inside.returncode == 0, inside.stderr
    assert "job.yaml:\n  name: fit\n  script: src/fit.py\n" in inside.stderr
    assert "  nproc_per_node: gpu\n  backend: nccl\n" in inside.stderr  # the inventory gives 2 GPUs
    assert "src/fit.py --save " in inside.stdout and inside.stdout.rstrip().endswith("--epochs 3")
    assert f"from {folder}" in inside.stdout
    assert outside.returncode == 0, outside.stderr
    assert "script: fit.py\n" in outside.stderr
    assert f"from {folder}/src" in outside.stdout


def test_dry_run_prints_lines_that_can_be_pasted(folder: Path) -> None:
    """What stands after -- reaches the script; the plan as JSON holds the same words."""
    text = run(folder, "launch", "job.yaml", "--dry-run", "--", "--lr", "1e-4", "a b")
    plan = json.loads(
        run(folder, "launch", "job.yaml", "--dry-run", "--json", "--", "--lr", "1e-4", "a b").stdout
    )

    assert text.stdout.rstrip().endswith("train.py --lr 1e-4 'a b'")
    assert "export NCCL_SOCKET_IFNAME='=eth0'" in text.stdout
    assert plan["plan"]["nodes"][0]["argv"][-4:] == ["train.py", "--lr", "1e-4", "a b"]


def test_a_missing_secret_is_named_before_anything_is_asked(folder: Path) -> None:
    """The value comes from our environment; without it nothing begins."""
    (folder / "job.yaml").write_text(JOB + "secrets: [NO_SUCH_KEY]\n")

    done = run(folder, "launch", "job.yaml")

    assert (done.returncode, "NO_SUCH_KEY" in done.stderr) == (2, True)


def test_an_unreachable_node_is_exit_4_for_every_verb(folder: Path) -> None:
    """Port 1 of loopback refuses at once; the node is named, nothing hangs."""
    (folder / "inventory.yaml").write_text(
        "{cluster: c, nodes: [{host: 127.0.0.1, name: dead, ssh: {port: 1}}]}"
    )

    for args in (
        ["check"],
        ["launch", "job.yaml"],
        ["ps"],
        ["status"],
        ["logs"],
        ["stop"],
        ["top", "--once"],
    ):
        done = run(folder, *args)
        assert done.returncode == 4, (args, done.stderr)
        assert "dead" in done.stdout + done.stderr
        assert "CC-SSH-002" in done.stdout + done.stderr


def test_a_bug_is_exit_70_and_its_traceback_goes_to_a_file(folder: Path) -> None:
    """The user sees one line and where the rest is."""
    code = (
        "import clusterctl.cli.context.load as l, clusterctl.cli.main as m\n"
        "def broken(*_): raise ZeroDivisionError('oops')\n"
        "l.choose_inventory = broken\n"
        "m.main(['ps'])"
    )
    env = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)

    assert done.returncode == 70
    assert "Traceback" not in done.stderr
    assert "ZeroDivisionError: oops" in done.stderr
    crash = next((folder / "state" / "clusterctl" / "crashes").iterdir())
    assert str(crash) in done.stderr
    assert "Traceback" in crash.read_text()


def test_ctrl_c_is_exit_130(folder: Path) -> None:
    """Interrupted while it waits for a server that never greets: one word, no traceback."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        (folder / "inventory.yaml").write_text(
            f"{{cluster: c, nodes: [{{host: 127.0.0.1, ssh: {{port: {port}}}}}]}}"
        )
        process = subprocess.Popen(
            [*COMMAND, "ps"],
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_STATE_HOME": str(folder)},
        )
        silent.settimeout(HANG)
        connection, _ = silent.accept()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=HANG)
        connection.close()

    assert process.returncode == 130, err
    assert "Traceback" not in err


def test_a_reader_that_leaves_is_no_error_of_ours(folder: Path) -> None:
    """`clusterctl ... | head -0` ends quietly."""
    command = f"'{sys.executable}' -m clusterctl -q launch job.yaml --dry-run | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False)

    assert done.returncode in (0, 141)
    assert done.stderr == ""


def test_colour_is_for_terminals_unless_it_is_asked_for(folder: Path) -> None:
    """A pipe gets none, --color always forces it, NO_COLOR needs no pipe."""
    plain = run(folder, "chek").stderr
    forced = run(folder, "--color", "always", "launch", "none.yaml").stderr

    assert "\x1b[" not in plain
    assert "\x1b[" in forced


def test_output_that_cannot_be_written_is_no_bug(folder: Path) -> None:
    """A full disk behind stdout is reported in one line; nothing is reported as our fault."""
    command = f"'{sys.executable}' -m clusterctl -q launch job.yaml --dry-run > /dev/full"
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr


def test_a_file_that_cannot_be_written_is_not_called_standard_output(folder: Path) -> None:
    """A disk that refuses the new inventory is named by that file, of which nothing is left."""
    (folder / "hosts").write_text("gpu01\ngpu02\n")
    command = f"ulimit -f 0; '{sys.executable}' -m clusterctl inventory import hosts -o new.yaml"
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False)

    assert (done.returncode, "new.yaml: File too large" in done.stderr) == (1, True), done.stderr
    assert not (folder / "new.yaml").exists()


def test_a_directory_that_is_missing_is_what_is_to_be_made(folder: Path) -> None:
    """More room, or permission, would not help."""
    (folder / "hosts").write_text("gpu01\ngpu02\n")
    done = run(folder, "inventory", "import", "hosts", "-o", "none/new.yaml")

    assert (done.returncode, "none/new.yaml: No such file" in done.stderr) == (1, True), done.stderr
    assert "fix: create its directory first" in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_bug(folder: Path, closed: str) -> None:
    """Whatever starts us without them, as some services do: the exit code is that of the work."""
    command = f"'{sys.executable}' -m clusterctl --color auto inventory show {closed}"
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False)

    assert (done.returncode, "bug" in done.stderr) == (0, False), done.stderr
    assert ("192.0.2.1" in done.stdout) == (">&-" not in closed.replace("2>&-", ""))


def test_a_group_without_a_verb_shows_its_help(folder: Path) -> None:
    """`clusterctl` and `clusterctl lab` alone answer with their verbs, line by line."""
    for args, verb in (([], "launch"), (["lab"], "break"), (["inventory"], "show")):
        done = run(folder, *args)
        assert done.returncode == 2
        assert any(line.strip().startswith(verb) for line in done.stderr.splitlines())
        assert "error CC-" not in done.stderr


def test_the_code_is_looked_at_before_any_node(folder: Path) -> None:
    """A missing script costs no connection, in a dry run neither; `check` reports it too."""
    (folder / "train.py").unlink()

    for args in (["launch", "job.yaml"], ["launch", "job.yaml", "--dry-run"], ["check", "job.yaml"]):
        done = run(folder, *args)
        assert (done.returncode, "CC-SYNC-010" in done.stderr) == (2, True)


def test_a_script_next_to_the_job_file_is_sent_too(folder: Path) -> None:
    """Also where the source is another directory; a script of `export`, which copies that alone, cannot have it."""
    (folder / "src").mkdir()
    (folder / "src/model.py").touch()

    sent = run(folder, "launch", "job.yaml", "--dry-run", "--set", "sync.source=src")
    exported = run(folder, "export", "bash", "job.yaml", "--set", "sync.source=src")

    assert "# code: 2 files" in sent.stdout
    assert (exported.returncode, "CC-SYNC-010" in exported.stderr) == (2, True)


def test_code_that_is_too_large_wants_a_word(folder: Path) -> None:
    """What is so large is named, and `--big` lifts the limit."""
    (folder / "data").mkdir()
    (folder / "data/images.bin").touch()
    os.truncate(folder / "data/images.bin", 501_000_000)

    refused = run(folder, "sync", "job.yaml")
    sent = run(folder, "launch", "job.yaml", "--dry-run", "--big")

    assert refused.returncode == 2
    assert all(word in refused.stderr for word in ("CC-SYNC-002", "data/images.bin 501 MB", "--big"))
    assert (sent.returncode, "501.0 MB" in sent.stdout) == (0, True)


def test_launch_as_json_always_ends_in_a_verdict(folder: Path) -> None:
    """Also where nothing could be started: a script that reads stdout needs no second source."""
    (folder / "inventory.yaml").write_text(
        "{cluster: c, nodes: [{host: 127.0.0.1, name: dead, ssh: {port: 1}}]}"
    )

    refused = run(folder, "launch", "job.yaml", "--json")
    (folder / "train.py").unlink()
    wrong = run(folder, "launch", "job.yaml", "--json")

    for done, code in ((refused, 4), (wrong, 2)):
        verdict = json.loads(done.stdout.splitlines()[-1])["verdict"]
        assert (done.returncode, verdict["exit_code"], verdict["state"]) == (code, code, "FAILED_SETUP")


def test_a_strange_terminal_is_no_bug(folder: Path) -> None:
    """A width that is no number, a home that does not exist, a locale without Unicode."""
    assert run(folder, "inventory", "show", COLUMNS="x").returncode == 0
    assert run(folder, "-i", "~no-such-user/x.yaml", "ps").returncode == 2
    (folder / "inventory.yaml").write_text(
        "{cluster: c, nodes: [{host: 192.0.2.1, name: one, activate: 'echo 名'}]}"
    )
    assert run(folder, "inventory", "show", "--json", PYTHONIOENCODING="ascii").returncode == 0


INTERRUPT = """
import os, signal, sys
class Interrupt:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == os.environ["INTERRUPTED_AT"]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt)
"""
INSTALLED = (
    "import sys\nfrom clusterctl.__main__ import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
)


@pytest.mark.parametrize("how", ["clusterctl", "cctl", "-m"])
@pytest.mark.parametrize(
    "module", ["clusterctl.__main__", "clusterctl.cli.main", "click", "clusterctl.errors"]
)
def test_an_interrupt_while_modules_load_shows_no_traceback(tmp_path: Path, how: str, module: str) -> None:
    """Ctrl-C at once after Enter: 130 and one word, as soon as the first module of ours is found."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPT)
    (tmp_path / how).write_text(INSTALLED)
    started = ["-m", "clusterctl"] if how == "-m" else [str(tmp_path / how)]
    done = subprocess.run(
        [sys.executable, *started, "ps"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}", "INTERRUPTED_AT": module},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize("words", [["-c", "{}"], ["{file}", "clusterctl"], ["-m", "mine", "clusterctl"]])
def test_a_program_that_imports_us_keeps_its_own_end(tmp_path: Path, words: list[str]) -> None:
    """As a library we change nothing about how an interrupt or an error ends a process."""
    text = "import clusterctl, sys\nprint(sys.excepthook is sys.__excepthook__)\n"
    (tmp_path / "mine.py").write_text(text)
    done = subprocess.run(
        [sys.executable, *(word.format(text, file=tmp_path / "mine.py") for word in words)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "True\n"


@pytest.mark.parametrize("encoding", ["ascii", "gbk", "latin-1", "utf-8"])
def test_json_is_json_in_every_locale(tmp_path: Path, encoding: str) -> None:
    """Programs read UTF-8 or ASCII, whatever the terminal uses."""
    (tmp_path / "inventory.yaml").write_text(
        "cluster: c\nactivate: echo 集群-é😀\nnodes: [{host: 10.0.0.1}]\n", encoding="utf-8"
    )
    done = subprocess.run(
        [*COMMAND, "inventory", "show", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": encoding, "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.decode("utf-8"))["nodes"][0]["activate"] == "echo 集群-é😀"


def test_nothing_is_imported_before_an_interrupt_is_expected() -> None:
    """Ctrl-C in the first tenth of a second must not meet an import outside of what turns it into exit code 130."""
    code = (
        "import sys; known = set(sys.modules); import clusterctl.__main__; print(*set(sys.modules) - known)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"clusterctl", "clusterctl.__main__", "__future__"}
