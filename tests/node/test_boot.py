"""The bootstrap: any Python answers, noise does no harm, failures are frames."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import sys
import textwrap
import zipfile
import zlib
from pathlib import Path

import pytest
from session import BOOT, PAYLOAD, Session
from waiting import HANG


def modules(verb: str) -> bytes:
    """Make a bundle of the real wire and one verb named `sample`."""
    sources = {
        "clusterctl.protocol.frames": (PAYLOAD.parent / "protocol" / "frames.py").read_text(),
        "clusterctl.node.runtime.stream": (PAYLOAD / "runtime" / "stream.py").read_text(),
        "clusterctl.node.verbs.sample": textwrap.dedent(verb),
    }
    return zlib.compress(json.dumps(sources).encode())


ECHO = """
    from ..runtime.stream import Stream
    def run(request, stream):
        print("stray")
        for header, body in iter(stream.receive, None):
            stream.send({"request": request, "got": header}, body[::-1])
"""


def test_frames_go_both_ways() -> None:
    """A verb gets its request and frames, bytes and large bodies included."""
    with Session("sample", {"x": "é\n"}, modules=modules(ECHO)) as session:
        session.send({"n": 1}, b"\x00\n12 3\n")
        session.send({"n": 2}, b"ab" * 3_000_000)
        session.hang_up()
        first, second, end = session.frames()

    assert first == ({"request": {"x": "é\n"}, "got": {"n": 1}}, b"\n3 21\n\x00")
    assert second[1] == b"ba" * 3_000_000
    assert end == ({"end": True}, b"")


def test_frames_sent_with_the_bootstrap_are_not_lost() -> None:
    """What stdin's buffer swallowed before the verb began still arrives."""
    with Session("sample", {}, modules=modules(ECHO)) as session:
        for number in range(50):
            session.send({"n": number})
        session.hang_up()
        frames = session.frames()

    assert [header["got"]["n"] for header, _ in frames[:-1]] == list(range(50))


def test_noise_before_the_sentinel_is_ignored() -> None:
    """A shell that prints a banner, and a verb that prints, break nothing."""
    shell = f"printf 'Welcome\\n12 3\\n'; exec '{sys.executable}' -c '{BOOT}'"
    with Session("sample", {}, modules=modules(ECHO), command=("/bin/sh", "-c", shell)) as session:
        session.send({"n": 1})
        session.hang_up()
        frames = session.frames()
        session.process.wait(HANG)

        assert session.noise == b"Welcome\n12 3\n"
        assert [header for header, _ in frames] == [{"request": {}, "got": {"n": 1}}, {"end": True}]
        assert b"stray" in session.stderr_so_far()


COUNT = """
    import os, sys
    def run(request, stream):
        sys.calls = getattr(sys, "calls", 0) + 1
        stream.send({"call": sys.calls, "pid": os.getpid()})
        for header, _ in iter(stream.receive, None):
            stream.send(header)
            if "stop" in header:
                return
"""


def test_a_process_serves_one_verb_after_the_other() -> None:
    """The next one brings only what is new, and its frames may be sent with it."""
    more = {"clusterctl.node.verbs.more": "from .sample import run"}
    with Session("sample", {}, modules=modules(COUNT)) as session:
        session.send({"n": 1})
        assert [session.receive(), session.receive()][1] == ({"n": 1}, b"")
        session.send({"stop": True})
        assert [session.receive(), session.receive()] == [({"stop": True}, b""), ({"end": True}, b"")]
        session.send({"beat": 1})  # may have been on its way
        session.continue_with("more", {}, zlib.compress(json.dumps(more).encode()))
        session.send({"n": 2})
        session.hang_up()
        first, second, end = session.frames()
        assert (first[0], second[0], end[0]) == (
            {"call": 2, "pid": session.process.pid},
            {"n": 2},
            {"end": True},
        )
        assert session.process.wait(HANG) == 0


def test_a_process_whose_verb_could_not_write_ends() -> None:
    """Half a frame may have left: what the next verb sent would make no sense."""
    verb = "def run(request, stream):\n    stream.send({})\n    raise BrokenPipeError\n"
    with Session("sample", {}, modules=modules(verb)) as session:
        assert session.receive() == ({}, b"")
        assert session.receive() is None
        assert session.process.wait(HANG) == 0


@pytest.mark.parametrize("harm", ["", "content", "mode", "link"])
def test_byte_code_of_an_earlier_run_is_used_if_it_is_whole_and_ours(tmp_path: Path, harm: str) -> None:
    """Else the modules that were sent are compiled."""
    name = f"payload-{sys.implementation.cache_tag}-"
    folder = tmp_path / "work" / "bin" / "abc"
    folder.mkdir(parents=True)
    for path in (folder, folder.parent, folder.parent.parent):
        path.chmod(0o777 if harm == "mode" and path == folder else 0o700)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for module, source in json.loads(
            zlib.decompress(modules(ECHO.replace(": request,", ": 'zip',")))
        ).items():
            parts = module.split(".")
            for depth in range(1, len(parts)):
                package = "/".join(parts[:depth]) + "/__init__.py"
                if package not in archive.namelist():
                    archive.writestr(package, "")
            archive.writestr("/".join(parts) + ".py", source)
    content = packed.getvalue()
    file = folder / f"{name}{hashlib.sha256(content).hexdigest()}.zip"
    if harm == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        file.symlink_to(tmp_path / "elsewhere")
    else:
        file.write_bytes(content + b"x" * (harm == "content"))
    with Session(
        "sample", {"workdir": str(tmp_path / "work")}, modules=modules(ECHO), payload="bin/abc"
    ) as session:
        session.send({})
        session.hang_up()
        assert session.frames()[0][0]["request"] == (
            "zip" if not harm else {"workdir": str(tmp_path / "work")}
        )


def test_a_work_directory_that_hangs_holds_up_nothing(tmp_path: Path) -> None:
    """What is no verb's own business must not keep a probe from reporting it."""
    program = (
        "import os, sys, time; sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))\n"
        f"os.listdir = os.path.realpath = os.lstat = lambda *_: time.sleep(600)\n"
        f"exec(compile({(PAYLOAD / 'boot.py').read_bytes()!r},'boot','exec'))"
    )
    request, command = {"workdir": str(tmp_path)}, (sys.executable, "-c", program)
    with Session("sample", request, modules=modules(ECHO), command=command, payload="bin/abc") as session:
        session.hang_up()
        assert session.frames() == [({"end": True}, b"")]
        assert session.process.wait(HANG) == 0


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("raise KeyError('lost')", "", "KeyError: 'lost'"),
        ("raise VerbError('CC-RUN-042', 'no such thing')", "CC-RUN-042", "no such thing"),
        ("raise OSError(28, 'No space left on device', '/x/y')", "CC-DISK-001", "/x/y"),
        ("open('/proc/no/file')", "CC-DISK-002", "cannot use /proc/no/file: No such file or directory"),
        ("__import__('os').listdir(b'/proc/none')", "CC-DISK-002", "cannot use /proc/none: No such"),
        ("raise BlockingIOError(11, 'Try again')", "", "the node's system refused: Try again"),
        ("raise OSError(9, 'Bad file descriptor')", "", "OSError: [Errno 9] Bad file descriptor"),
    ],
)
def test_a_failing_verb_answers_with_an_error_frame(body: str, code: str, message: str) -> None:
    """Exceptions become frames; only bugs carry a traceback with source lines."""
    verb = f"from ..runtime.stream import VerbError\ndef run(request, stream):\n    {body}\n"
    with Session("sample", {}, modules=modules(verb)) as session:
        (header, _), end = session.frames()

    assert header["error"]["code"] == code
    assert message in header["error"]["message"]
    assert (body in header["error"]["traceback"]) == (code == "" and "refused" not in message)
    assert end == ({"end": True}, b"")


def test_a_client_that_leaves_ends_the_verb_quietly() -> None:
    """No traceback is printed when nobody reads the answer."""
    verb = "def run(request, stream):\n    while True:\n        stream.send({}, bytes(100000))\n"
    session = Session("sample", {}, modules=modules(verb))
    session.receive()
    assert session.process.stdout is not None
    session.process.stdout.close()
    assert session.process.wait(HANG) == 0
    assert session.stderr_so_far() == b""
    session.process.stdout = None
    session.close()


def test_modules_in_the_home_directory_do_no_harm(tmp_path: Path) -> None:
    """A json.py where the login shell starts is not imported."""
    for name in ("json", "zlib", "payload", "select", "traceback"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')")
    with Session("sample", {}, modules=modules(ECHO), cwd=tmp_path) as session:
        session.hang_up()
        assert session.frames() == [({"end": True}, b"")]


def test_an_old_python_says_that_it_is_too_old() -> None:
    """The version check answers by frames; an impossible floor stands in for an old interpreter."""
    boot = (PAYLOAD / "boot.py").read_bytes()
    program = (
        "import sys; sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))\n"
        f"sys.version_info=(3,4,10)\nexec(compile({boot!r},'boot','exec'))"
    )
    with Session("sample", {}, modules=b"", command=(sys.executable, "-c", program)) as session:
        (header, _), end = session.frames()

    assert header["error"]["code"] == "CC-PY-002"
    assert "3.4.10" in header["error"]["message"]
    assert end == ({"end": True}, b"")


def test_modules_evaluate_no_annotations() -> None:
    """Newer ones would fail on Python 3.8; that every module can be parsed there is a rule of tests/test_layers.py."""
    paths = [path for path in PAYLOAD.rglob("*.py") if path.stem not in ("boot", "__init__")]
    assert len(paths) > 50
    line = "\nfrom __future__ import annotations\n"
    assert [path for path in paths if line not in path.read_text()] == []


def test_boot_keeps_to_the_syntax_of_old_pythons() -> None:
    """No annotations, f-strings or other things that Python 2.7 and 3.4 cannot read."""
    source = (PAYLOAD / "boot.py").read_text()
    source.encode("ascii")
    tree = ast.parse(source, feature_version=(3, 4))
    too_new = (ast.AnnAssign, ast.JoinedStr, ast.Nonlocal, ast.NamedExpr, ast.YieldFrom, ast.AsyncFunctionDef)

    for node in ast.walk(tree):
        assert not isinstance(node, too_new), ast.dump(node)
        if isinstance(node, ast.FunctionDef):
            assert node.returns is None and not node.args.kwonlyargs, node.name
            assert not any(argument.annotation for argument in node.args.args), node.name
        if isinstance(node, ast.Raise):
            assert node.cause is None
