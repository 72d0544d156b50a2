"""Host keys: what is known, what is refused, what is recorded."""

from __future__ import annotations

import base64
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from servers import Client, Server, hop_named, make_key, plain_hop, run_keygen
from waiting import HANG

from clusterctl.client.ssh.host_keys import HostKeys, KnownHosts, fingerprint, parse_entries, render_name
from clusterctl.client.ssh.route import Hop
from clusterctl.errors import HostKeyError


def public(kind: str, content: bytes) -> bytes:
    """Make bytes that look like a public key of a type."""
    name = kind.encode()
    return len(name).to_bytes(4, "big") + name + content


ED, ED_OTHER = public("ssh-ed25519", b"one"), public("ssh-ed25519", b"two")
RSA = public("ssh-rsa", b"three")


def line(names: str, key: bytes = ED, kind: str = "ssh-ed25519", marker: str = "") -> str:
    """Write a line of known_hosts."""
    return f"{marker} {names} {kind} {base64.b64encode(key).decode()} a comment".strip() + "\n"


def matches(text: str, name: str) -> list[int]:
    """List the lines that are meant by a name."""
    return [entry.line for entry in KnownHosts(parse_entries(text, "known_hosts")).match(name)]


@pytest.mark.parametrize(
    ("names", "name", "expected"),
    [
        ("gpu01", "gpu01", True),
        ("gpu01", "gpu02", False),
        ("GPU01.Lab", "gpu01.lab", True),
        ("a,gpu01,10.0.0.1", "10.0.0.1", True),
        ("gpu0?", "gpu01", True),
        ("gpu0?", "gpu011", False),
        ("*.lab", "gpu01.lab", True),
        ("*.lab", "lab", False),
        ("*", "[gpu01]:2222", True),
        ("*.lab,!bad.lab", "good.lab", True),
        ("*.lab,!bad.lab", "bad.lab", False),
        ("!bad.lab,*.lab", "bad.lab", False),
        ("!bad.lab", "good.lab", False),
        ("[gpu01]:2222", "[gpu01]:2222", True),
        ("[gpu01]:2222", "gpu01", False),
        ("gpu01", "[gpu01]:2222", False),
        ("[*.lab]:2222", "[gpu01.lab]:2222", True),
        ("[gpu0?]:2222", "g", False),  # brackets are letters, not a class of letters
        ("fe80::1", "fe80::1", True),
        ("g.u01", "gpu01", False),
    ],
)
def test_names(names: str, name: str, expected: bool) -> None:
    """Names match as sshd(8) reports."""
    assert matches(line(names), name) == ([1] if expected else [])


def test_malformed_lines_are_passed_over() -> None:
    """Lines that mean nothing cost nothing, and the numbers of the others stay right."""
    good = line("gpu01")
    text = "".join(
        [
            "# a comment\n",
            "\n",
            "   \t\n",
            "gpu01\n",
            "gpu01 ssh-ed25519\n",
            "gpu01 ssh-ed25519 !!!notbase64\n",
            line("gpu01", ED, "ssh-rsa"),  # the key is of another type than the line reports
            "@unheard-of " + good,
            "|1|only-salt " + good.split(" ", 1)[1],
            "|1|a|b|c " + good.split(" ", 1)[1],
            "gpu01 2048 65537 123456\n",
            "\udcff\udcfe\n",
            good.replace(" ", "\x0b"),
            good.replace(" ", "\xa0"),
            good.replace(" ", "\x0b", 1),
            good.rstrip("\n"),
        ]
    )
    assert matches(text, "gpu01") == [16]


def test_hashed_names_made_by_ssh_keygen(tmp_path: Path) -> None:
    """Hashing a file changes nothing for the names in it."""
    names = ["gpu01", "[gpu02]:2222", "10.0.0.3"]
    key = make_key(tmp_path / "key").with_suffix(".pub").read_text()
    file = tmp_path / "known_hosts"
    file.write_text("".join(f"{name} {key}" for name in names))
    run_keygen("-q", "-H", "-f", str(file))
    text = file.read_text()
    assert "gpu" not in text.replace("key", "")
    for number, name in enumerate(names, 1):
        assert matches(text, name) == [number]
    assert matches(text, "gpu02") == []


def test_a_file_with_ends_of_lines_of_windows_is_read() -> None:
    """As ssh does."""
    assert matches(line("gpu01").replace("\n", "\r\n") + "gpu02\t" + line("x").split(" ", 1)[1], "gpu01") == [
        1
    ]


@pytest.mark.parametrize(("name", "port"), [("gpu01", 22), ("gpu01", 2222)])
def test_a_new_key_is_recorded_under_a_hash_where_the_user_has_it_so(
    judge: Judge, name: str, port: int
) -> None:
    """ssh-keygen finds it by its name, which is not in the file; the key is known from then on."""
    node = replace(hop_named("n", host_keys="accept-new"), host=name, port=port, hashes_names=True)
    key = base64.b64decode(make_key(judge.home / "key").with_suffix(".pub").read_text().split()[1])
    judge.keys.verify(node, "ssh-ed25519", key)
    file = judge.home / ".ssh/known_hosts"
    assert "gpu01" not in file.read_text()
    assert "found" in run_keygen("-F", render_name(name, port), "-f", str(file))
    judge.keys.verify(node, "ssh-ed25519", key)
    assert HostKeys(home=judge.home, system_file=judge.home / "system").key_types(node) == ["ssh-ed25519"]
    assert judge.refusal(node, ED_OTHER).code == "CC-SSH-010"


def test_fingerprint_is_ssh_keygens(tmp_path: Path) -> None:
    """People compare it by eye with what ssh-keygen prints."""
    key = make_key(tmp_path / "key")
    raw = base64.b64decode(key.with_suffix(".pub").read_text().split()[1])
    assert run_keygen("-lf", str(key)).split()[1] == fingerprint(raw)


@pytest.mark.parametrize(
    ("host", "port", "name"), [("A", 22, "a"), ("A", 2222, "[a]:2222"), ("::1", 22, "::1")]
)
def test_render_name(host: str, port: int, name: str) -> None:
    """A port other than 22 is part of the name."""
    assert render_name(host, port) == name


class Judge:
    """Host keys over files of the test's own."""

    def __init__(self, home: Path) -> None:
        self.recorded: list[str] = []
        self.home = home
        (home / ".ssh").mkdir()
        self.keys = HostKeys(self.recorded.append, home=home, system_file=home / "system")

    def write(self, text: str, name: str = ".ssh/known_hosts") -> str:
        """Write a file before it is read, and return its path."""
        (self.home / name).write_text(text)
        return str(self.home / name)

    def refusal(self, node: Hop, key: bytes = ED, kind: str = "ssh-ed25519") -> HostKeyError:
        """Return the error for a key that must be refused."""
        with pytest.raises(HostKeyError) as caught:
            self.keys.verify(node, kind, key)
        assert caught.value.node == node.name
        return caught.value


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Start with no known host."""
    return Judge(tmp_path)


def test_known_key_is_accepted(judge: Judge) -> None:
    """Found in the user's files, the second one, or the system's."""
    judge.write(line("other"))
    judge.write(line("[127.0.0.1]:2222"), ".ssh/known_hosts2")
    judge.write(line("127.0.0.1"), "system")
    judge.keys.verify(hop_named("n", port=2222), "ssh-ed25519", ED)
    judge.keys.verify(hop_named("n"), "ssh-ed25519", ED)
    assert judge.recorded == []


def test_line_without_port_counts_if_it_holds_the_key(judge: Judge) -> None:
    """As with OpenSSH: equal is good, different is merely unknown."""
    judge.write(line("127.0.0.1"))
    judge.keys.verify(hop_named("n", port=2222), "ssh-ed25519", ED)
    assert judge.refusal(hop_named("n", port=2222), ED_OTHER).code == "CC-SSH-009"


def test_unknown_key_is_refused_with_a_way_out(judge: Judge) -> None:
    """The fingerprint is shown, and how to look and how to accept."""
    refusal = judge.refusal(hop_named("n", port=2222))
    assert refusal.code == "CC-SSH-009"
    assert fingerprint(ED) in refusal.evidence
    assert "ssh-keyscan -t ed25519 -p 2222 127.0.0.1 | ssh-keygen -lf -" in refusal.fix
    assert "host_keys: accept-new" in refusal.fix
    assert "ssh-keyscan -t ed25519 127.0.0.1 |" in judge.refusal(hop_named("n", port=22)).fix


@pytest.mark.parametrize("mode", ["strict", "accept-new"])
def test_changed_key_is_refused_in_either_mode(judge: Judge, mode: str) -> None:
    """Both fingerprints, the file and the line are named, and the file stays as it is."""
    file = judge.write("# first\n" + line("127.0.0.1", ED_OTHER))
    before = Path(file).read_bytes()
    refusal = judge.refusal(hop_named("n", host_keys=mode))
    assert refusal.code == "CC-SSH-010"
    assert f"{file}:2" in refusal.message
    assert fingerprint(ED) in refusal.evidence
    assert fingerprint(ED_OTHER) in refusal.evidence
    assert f"ssh-keygen -R 127.0.0.1 -f {file}" in refusal.fix
    assert Path(file).read_bytes() == before


def test_key_of_another_type_counts_as_changed(judge: Judge) -> None:
    """Whoever cannot show the known key does not get in by showing one of another type."""
    judge.write(line("127.0.0.1", RSA, "ssh-rsa"))
    assert judge.refusal(hop_named("n", host_keys="accept-new")).code == "CC-SSH-010"


def test_one_of_several_known_keys_is_enough(judge: Judge) -> None:
    """A host may be listed with several keys."""
    judge.write(line("127.0.0.1", RSA, "ssh-rsa") + line("127.0.0.1", ED_OTHER) + line("127.0.0.1"))
    judge.keys.verify(hop_named("n"), "ssh-ed25519", ED)
    assert judge.keys.key_types(hop_named("n")) == ["ssh-rsa", "ssh-ed25519"]


@pytest.mark.parametrize("marker", ["@revoked", "@cert-authority"])
@pytest.mark.parametrize(("names", "marked"), [("127.0.0.1", True), ("*", True), ("other", False)])
def test_lines_that_only_ssh_judges_are_found(judge: Judge, names: str, marked: bool, marker: str) -> None:
    """With a port or without; none of them makes a key a known one."""
    judge.write(line(names, marker=marker))
    for port in (22, 2222):
        node = hop_named("n", port=port)
        assert judge.keys.has_markers(node) is marked
        assert judge.refusal(node).code == "CC-SSH-009"


def test_own_file_is_the_only_one(judge: Judge) -> None:
    """`known_hosts` in the inventory replaces the usual files."""
    judge.write(line("127.0.0.1"))
    own = judge.write("", "own")
    assert judge.refusal(hop_named("n", known_hosts=own)).code == "CC-SSH-009"
    judge.keys.verify(hop_named("n", known_hosts="~/.ssh/known_hosts"), "ssh-ed25519", ED)


def test_new_key_is_recorded_once_and_reported(judge: Judge) -> None:
    """The file is made for its owner alone; asking again is silent."""
    node = hop_named("n", port=2222, host_keys="accept-new")
    judge.keys.verify(node, "ssh-ed25519", ED)
    judge.keys.verify(node, "ssh-ed25519", ED)
    file = judge.home / ".ssh/known_hosts"
    assert file.read_text() == f"[127.0.0.1]:2222 ssh-ed25519 {base64.b64encode(ED).decode()}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert judge.recorded == [f"n: new host key {fingerprint(ED)} recorded in {file}"]
    assert judge.refusal(node, ED_OTHER).code == "CC-SSH-010"
    assert HostKeys(home=judge.home).key_types(node) == ["ssh-ed25519"]


def test_recording_repairs_an_open_last_line(judge: Judge) -> None:
    """A file that does not end in a newline keeps its last line."""
    file = Path(judge.write(line("other").rstrip("\n")))
    judge.keys.verify(hop_named("n", host_keys="accept-new"), "ssh-ed25519", ED)
    assert matches(file.read_text(), "other") == [1]
    assert matches(file.read_text(), "127.0.0.1") == [2]


def test_recording_makes_the_folder(tmp_path: Path) -> None:
    """A first user has no ~/.ssh; it is made for the owner alone."""
    HostKeys(home=tmp_path).verify(hop_named("n", host_keys="accept-new"), "ssh-ed25519", ED)
    assert stat.S_IMODE((tmp_path / ".ssh").stat().st_mode) == 0o700


@pytest.fixture
def hurried() -> Iterator[None]:
    """Let threads interrupt each other all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hurried")
def test_many_threads_record_each_key_once(judge: Judge) -> None:
    """Threads that meet new hosts at once lose no line and double none."""
    nodes = [hop_named(f"n{port}", port=port, host_keys="accept-new") for port in range(3000, 3040)]
    together = threading.Barrier(4)

    def meet() -> None:
        for node in nodes:
            together.wait(HANG)
            judge.keys.verify(node, "ssh-ed25519", ED)

    threads = [threading.Thread(target=meet) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = (judge.home / ".ssh/known_hosts").read_text().splitlines()
    assert len(lines) == len(set(lines)) == len(judge.recorded) == 40


def test_one_of_two_new_keys_of_an_address_is_accepted(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both threads have found nothing known before either records its key: the second is a changed key."""
    node, together, errors = (
        hop_named("n", host_keys="accept-new"),
        threading.Barrier(2),
        list[HostKeyError](),
    )
    accept = HostKeys._accept

    def accept_together(*arguments: Any) -> None:
        together.wait(HANG)
        accept(*arguments)

    def meet(key: bytes) -> None:
        try:
            judge.keys.verify(node, "ssh-ed25519", key)
        except HostKeyError as error:
            errors.append(error)

    monkeypatch.setattr(HostKeys, "_accept", accept_together)
    threads = [threading.Thread(target=meet, args=(key,)) for key in (ED, ED_OTHER)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [error.code for error in errors] == ["CC-SSH-010"]
    assert len((judge.home / ".ssh/known_hosts").read_text().splitlines()) == len(judge.recorded) == 1


def test_new_key_that_cannot_be_recorded_is_refused(judge: Judge) -> None:
    """What cannot be remembered would be accepted blindly every time."""
    (judge.home / "file").write_text("")
    node = hop_named("n", host_keys="accept-new", known_hosts=str(judge.home / "file/known_hosts"))
    assert judge.refusal(node).code == "CC-SSH-012"
    assert judge.recorded == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file_is_named(judge: Judge) -> None:
    """A file that cannot be read explains why its hosts are unknown."""
    file = judge.write(line("127.0.0.1"))
    Path(file).chmod(0)
    assert f"{file} cannot be read" in judge.refusal(hop_named("n")).evidence


def test_real_server_with_hashed_line(server: Server, client: Client, tmp_path: Path) -> None:
    """A connection is made on the word of a hashed line."""
    file = tmp_path / "hashed"
    file.write_text(server.known_hosts.read_text())
    run_keygen("-q", "-H", "-f", str(file))
    assert "127.0.0.1" not in file.read_text()
    assert client.connect(server.node(known_hosts=str(file))).is_connected


def test_real_server_with_another_key(server: Server, client: Client, tmp_path: Path) -> None:
    """It is refused before any key of ours is shown."""
    other = make_key(tmp_path / "other").with_suffix(".pub").read_text()
    file = tmp_path / "known_hosts"
    file.write_text(f"[127.0.0.1]:{server.port} {other}")
    before = server.log.count("Accepted publickey")
    with pytest.raises(HostKeyError) as caught:
        client.connect(server.node(known_hosts=str(file), host_keys="accept-new"))
    assert caught.value.code == "CC-SSH-010"
    assert server.log.count("Accepted publickey") == before


def test_real_server_is_asked_for_the_known_type(
    serve: Callable[..., Server], client: Client, tmp_path: Path
) -> None:
    """Of several host keys the server is asked for the one that is known, whatever we would prefer."""
    keys = {kind: make_key(tmp_path / f"host_{kind}", kind) for kind in ("ed25519", "ecdsa", "rsa")}
    server = serve(*(f"HostKey {path}" for path in keys.values()))
    for kind, path in keys.items():
        file = tmp_path / f"known_{kind}"
        file.write_text(f"[127.0.0.1]:{server.port} {path.with_suffix('.pub').read_text()}")
        connection = client.connect(server.node(known_hosts=str(file)))
        assert kind in connection.transport.get_remote_server_key().get_name()


def test_real_server_that_lost_the_known_type(
    serve: Callable[..., Server], client: Client, tmp_path: Path
) -> None:
    """A server that only has a key of another type is not who it was."""
    known = make_key(tmp_path / "known", "ecdsa").with_suffix(".pub").read_text()
    server = serve()
    file = tmp_path / "known_hosts"
    file.write_text(f"[127.0.0.1]:{server.port} {known}")
    with pytest.raises(HostKeyError) as caught:
        client.connect(server.node(known_hosts=str(file), host_keys="accept-new"))
    assert caught.value.code == "CC-SSH-010"


def test_real_server_accept_new(server: Server, client: Client, tmp_path: Path) -> None:
    """The first connection records and reports it, the second is silent, another process accepts it."""
    node = server.node(known_hosts=str(tmp_path / "new"), host_keys="accept-new")
    client.connect(node)
    client.connect(node)
    assert [text.partition(":")[0] for text in client.recorded] == ["n1"]
    HostKeys(home=tmp_path).verify(
        plain_hop(server.node(known_hosts=str(tmp_path / "new"))),
        "ssh-ed25519",
        base64.b64decode(server.host_key.split()[1]),
    )
