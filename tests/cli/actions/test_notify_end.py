"""What is done when a run has ended: messages, a command of the user's own, and what is kept for the next attach."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting import HANG, wait_until

from clusterctl.cli.actions.notify import check_hooks, notify_end, remember_hooks, warn_not_notified
from clusterctl.errors import UsageError
from clusterctl.plans.runs.verdict import Verdict
from clusterctl.protocol.root_cause import Cause, Failure
from clusterctl.specs.inventory.model import Inventory
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.model import Job
from clusterctl.specs.job.parse import parse_job

if TYPE_CHECKING:
    from conftest import Webhook

RUN = "digits-20261121T101500-ab12"
SECRET = "s3cr3t-value"
INVENTORY: Inventory = parse_inventory("cluster: lab-a\nnodes: [{host: 10.0.0.1}]\n", "inventory.yaml")


def verdict(state: str = "FAILED") -> Verdict:
    """Build the end of a run."""
    failure = Failure("gpu01", 0, 1, None, 1.0, exception=f"ValueError: {SECRET}")
    return Verdict(RUN, state, {"gpu01": state}, Cause(failure, ()) if state == "FAILED" else None, {}, {})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a machine's own state directory, and a directory for the job."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "job").mkdir()
    return tmp_path


@pytest.fixture
def hook(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Give what comes to the URL in HOOK_URL."""
    monkeypatch.setenv("HOOK_URL", webhook.url)
    return webhook.got


def job(home: Path, text: str) -> Job:
    """Read a job with some hooks."""
    return parse_job(f"name: digits\nscript: train.py\n{text}", str(home / "job" / "job.yaml"))


def keep(home: Path, text: str) -> None:
    """Keep the hooks of a job for its run."""
    remember_hooks(job(home, text), INVENTORY, RUN)


def script(home: Path, text: str) -> None:
    """Write the command that the job names."""
    (home / "job" / "tell.py").write_text(f"#!/usr/bin/env python3\n{text}")
    (home / "job" / "tell.py").chmod(0o755)


def kept(home: Path) -> list[str]:
    """List what still waits for an end."""
    folder = home / "state" / "clusterctl" / "ends"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_the_command_gets_the_verdict(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """On stdin, its arguments as they are written, beside the job file; what it prints is no result of ours."""
    script(home, "import sys, os; open('seen', 'w').write(sys.stdin.read()); print(sys.argv[1:])")
    keep(home, "on_end: {command: [./tell.py, '$(id) *', '']}")
    notify_end(verdict(), 60.0, "clusterctl", [SECRET])
    seen = json.loads((home / "job" / "seen").read_text())
    out, err = capfd.readouterr()

    assert (out, err) == ("", "['$(id) *', '']\n")
    assert (seen["run"], seen["verdict"]["state"], seen["verdict"]["exit_code"]) == (RUN, "FAILED", 1)
    assert seen["verdict"]["cause"]["exception"] == "ValueError: [secret]"
    assert kept(home) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise SystemExit(3)", "on_end: ./tell.py exited with code 3"),
        ("import os; os.kill(os.getpid(), 9)", "on_end: ./tell.py was killed by signal 9"),
    ],
)
def test_a_command_that_fails_is_reported(
    home: Path, text: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """And never tried again."""
    script(home, text)
    keep(home, "on_end: {command: [./tell.py]}")
    notify_end(verdict(), 60.0, "clusterctl", [])

    assert f"CC-END-001: {said}" in capfd.readouterr().err
    assert kept(home) == []


def test_a_command_that_is_not_there(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A code, and no traceback."""
    keep(home, "on_end: {command: [./tell.py]}")
    notify_end(verdict(), 60.0, "clusterctl", [])

    assert "CC-END-001: on_end: ./tell.py cannot be run: No such file" in capfd.readouterr().err


def test_a_command_that_hangs_is_ended_with_its_children(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """At its time limit, whether it reads its input or not."""
    script(home, "import subprocess, time; subprocess.Popen(['sleep', '31415.9']); time.sleep(3600)")
    keep(home, "on_end: {command: [./tell.py], time_limit: 0.7}")
    notify_end(verdict(), 60.0, "clusterctl", [])

    assert "was stopped after 0.7 s" in capfd.readouterr().err

    def ended() -> bool:
        lines = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                lines.append(path.read_bytes())
        return b"sleep\x0031415.9\x00" not in lines

    wait_until(ended, "the end of the child")


def test_a_webhook_is_sent_once(home: Path, hook: list[Any], capfd: pytest.CaptureFixture[str]) -> None:
    """However many commands of ours see the end; the file that waited is private and holds no URL."""
    keep(home, "notify: [{to: webhook, url_from: HOOK_URL}]")
    file = home / "state" / "clusterctl" / "ends" / f"{RUN}.json"
    mode, content = stat.S_IMODE(file.stat().st_mode), file.read_text()
    for _ in range(2):
        notify_end(verdict(), 60.0, "clusterctl", [SECRET])

    assert (mode, "HOOK_URL" in content, "127.0.0.1" in content) == (0o600, True, False)
    assert [body["verdict"]["state"] for body in hook] == ["FAILED"]
    assert SECRET not in json.dumps(hook)
    assert capfd.readouterr().err == "sent: a message to webhook, its URL from $HOOK_URL\n"


def test_only_the_ends_that_are_wanted(home: Path, hook: list[Any]) -> None:
    """A success shows no one who asked for failures, and the run is done with."""
    script(home, "open('seen', 'w')")
    keep(
        home,
        "on_end: {command: [./tell.py], when: failed}\nnotify: [{to: webhook, url_from: HOOK_URL, when: failed}]",
    )
    notify_end(verdict("SUCCEEDED"), 60.0, "clusterctl", [])

    assert (hook, (home / "job" / "seen").exists(), kept(home)) == ([], False, [])


def test_what_could_not_be_sent_waits_for_the_next_attach(
    home: Path, hook: list[Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A variable that is not set here is named; the command was run and is not run again."""
    script(home, "open('seen', 'a').write('x')")
    both = "[{to: webhook, url_from: HOOK_URL}, {to: slack, url_from: OTHER_URL}]"
    keep(home, f"on_end: {{command: [./tell.py]}}\nnotify: {both}")
    notify_end(verdict(), 60.0, "clusterctl -i a.yaml", [])
    err = capfd.readouterr().err
    left = kept(home)
    monkeypatch.setenv("OTHER_URL", "http://127.0.0.1:9/x")
    monkeypatch.setattr("clusterctl.client.local.notify.PAUSE", 0.0)
    notify_end(verdict(), 60.0, "clusterctl", [])

    assert (
        "CC-END-003: not sent: a message to slack, its URL from $OTHER_URL: OTHER_URL is not set here" in err
    )
    assert f"fix: clusterctl -i a.yaml attach {RUN} tries again" in err
    assert left == [f"{RUN}.json"] == kept(home)
    assert "CC-END-002: not sent: a message to slack" in capfd.readouterr().err
    assert (len(hook), (home / "job" / "seen").read_text()) == (1, "x")


def test_a_launch_that_could_not_notify_starts_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables are looked at before anything else; their values are not shown."""
    wrong = job(home, "notify: [{to: dingtalk, url_from: HOOK_URL, secret_from: HOOK_SECRET}]")
    monkeypatch.setenv("HOOK_URL", "http://10.0.0.1/tok-12345678")
    with pytest.raises(UsageError, match="HOOK_SECRET is not set here") as unset:
        check_hooks(wrong)
    monkeypatch.setenv("HOOK_SECRET", "x")
    with pytest.raises(UsageError, match="HOOK_URL: dingtalk requires https://") as plain:
        check_hooks(wrong)

    assert unset.value.code == plain.value.code == "CC-END-003"
    assert "tok-" not in plain.value.message


def test_who_leaves_is_reported(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Only where there is something to tell."""
    warn_not_notified(RUN, "clusterctl attach it")
    keep(home, "notify: [{to: slack, url_from: X}]")
    warn_not_notified(RUN, "clusterctl attach it")

    assert capfd.readouterr().err.splitlines() == [
        "note: notifications and on_end run only while you are attached from this machine: clusterctl attach it"
    ]


def test_a_full_state_directory_costs_no_verdict(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Where nothing can be kept, that is reported, and nothing else happens."""
    (home / "state").write_text("in the way")
    keep(home, "notify: [{to: slack, url_from: X}]")
    notify_end(verdict(), 60.0, "clusterctl", [])

    assert capfd.readouterr().err.startswith("note: notifications and on_end will not run: ")


HOSTILE_RUNS = [
    "../secret-20261121T101500-ab12",
    "sub/digits-20261121T101500-ab12",
    "ABSOLUTE/digits-20261121T101500-ab12",
    "/proc/self/cwd/digits-20261121T101500-ab12",
    "digits",
    "digits-20261121T101500-ab12\n",
    "digits-20261121T101500-AB12",
    ".-20261121T101500-ab12",
    "",
]


@pytest.mark.parametrize("name", HOSTILE_RUNS)
def test_a_name_that_a_node_made_up_leads_nowhere(
    home: Path, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Hooks that lie where such a name points are not run, and the file stays."""
    run = name.replace("ABSOLUTE", str(home / "planted"))
    script(home, "open('seen', 'w')")
    keep(home, "on_end: {command: [./tell.py]}")
    ends = home / "state" / "clusterctl" / "ends"
    text = (ends / f"{RUN}.json").read_text()
    (ends / f"{RUN}.json").unlink()
    monkeypatch.chdir(home / "job")
    planted = Path(f"{ends / run}.json")
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(text)
    notify_end(replace(verdict(), run_id=run), 60.0, "clusterctl", [])
    warn_not_notified(run, "clusterctl attach it")

    assert planted.read_text() == text
    assert not (home / "job" / "seen").exists()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "plant",
    [
        lambda file: file.write_text("{}"),
        lambda file: file.write_text("[" * 100_000),
        lambda file: file.write_text(file.read_text().replace('"digits"', '"other"')),
        lambda file: (file.rename(file.with_suffix(".mine")), file.symlink_to(file.with_suffix(".mine"))),
        lambda file: (file.unlink(), file.mkdir()),
        lambda file: (file.unlink(), os.mkfifo(file)),
    ],
    ids=["no hooks", "deep", "of another job", "a link", "a directory", "a pipe"],
)
def test_what_is_not_the_hooks_of_the_run_stays(home: Path, plant: Callable[[Path], object]) -> None:
    """It is neither run nor removed."""
    script(home, "open('seen', 'w')")
    keep(home, "on_end: {command: [./tell.py]}")
    plant(home / "state" / "clusterctl" / "ends" / f"{RUN}.json")
    before = kept(home)
    notify_end(verdict(), 60.0, "clusterctl", [])

    assert f"{RUN}.json" in before == kept(home)
    assert not (home / "job" / "seen").exists()


@pytest.mark.parametrize(
    "spoil",
    [lambda path: path.chmod(0o777), lambda path: os.chown(path, 65534, -1)],
    ids=["open to all", "another's"],
)
@pytest.mark.parametrize("place", ["state/clusterctl/ends", "state/clusterctl", "state"])
def test_hooks_that_others_could_have_put_there_are_not_run(
    home: Path, place: str, spoil: Callable[[Path], object], capfd: pytest.CaptureFixture[str]
) -> None:
    """The command does not run, whichever of the directories others can write to."""
    script(home, "open('seen', 'w')")
    keep(home, "on_end: {command: [./tell.py]}")
    try:
        spoil(home / place)
    except PermissionError:
        pytest.skip("only root gives files away")
    if place.endswith("ends"):
        notify_end(verdict(), 60.0, "clusterctl", [])
        warn_not_notified(RUN, "clusterctl attach it")
        assert capfd.readouterr().err.count(f"are skipped: {home / place} ") == 2
    else:
        with pytest.raises(UsageError, match=str(home / place)) as refusal:
            notify_end(verdict(), 60.0, "clusterctl", [])
        assert refusal.value.code == "CC-USE-041"

    assert not (home / "job" / "seen").exists()
    assert kept(home) == [f"{RUN}.json"]


TELLS = """
from clusterctl.cli.actions.notify import notify_end
from clusterctl.plans.runs.verdict import Verdict
notify_end(Verdict("RUN", "FAILED", {"gpu01": "FAILED"}, None, {}, {}), 60.0, "clusterctl", [])
print("the verdict's exit code follows")
"""


def test_leaving_leaves_no_command_behind(home: Path) -> None:
    """Ctrl-C while the command runs ends the command; what the launch ends with is not touched."""
    script(home, "import os, time; open('started', 'w').write(str(os.getpid())); time.sleep(3600)")
    keep(home, "on_end: {command: [./tell.py]}")
    words = [sys.executable, "-c", TELLS.replace("RUN", RUN)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as telling:
        started = home / "job" / "started"
        wait_until(lambda: started.exists() and started.read_text(), "the command")
        telling.send_signal(signal.SIGINT)
        out, err = telling.communicate(timeout=HANG)

    assert (out, err) == (
        "the verdict's exit code follows\n",
        "interrupted before all notifications were sent\n",
    )
    assert not Path(f"/proc/{started.read_text()}").exists()
    assert kept(home) == []
