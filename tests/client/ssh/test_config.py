"""The user's SSH configuration as ssh itself reads it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from waiting import wait_until

from clusterctl.client.ssh.config import SshConfig, split_paths
from clusterctl.client.ssh.route import Hop, Routes
from clusterctl.errors import ClusterctlError, Unreachable
from clusterctl.specs.inventory.model import Node, Ssh

pytestmark = pytest.mark.skipif(
    shutil.which("ssh") is None, reason="ssh is not installed: apt install openssh-client"
)

COUNTING = '#!/bin/sh\necho asked >> "$0.count"\nexec ssh "$@"\n'


class Desk:
    """Configuration files in a folder, and an ssh that counts how often it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "counting-ssh"
        self.program.write_text(COUNTING)
        self.program.chmod(0o755)
        self.notices: list[str] = []

    def write(self, text: str, name: str = "config") -> str:
        """Write a file."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def routes(self, program: str | None = None) -> Routes:
        """Begin a command."""
        return Routes(SshConfig(self.notices.append, program=program or str(self.program)))

    def hop(self, host: str = "gpu1", **ssh: object) -> Hop:
        """Work out the way to one node in a command of its own."""
        node = Node(name="n1", index=0, host=host, ssh=Ssh(**{"config": str(self.folder / "config"), **ssh}))
        routes = self.routes()
        routes.prepare([node])
        return routes.find(node)

    @property
    def asked(self) -> int:
        """Count how often ssh was asked."""
        count = Path(f"{self.program}.count")
        return count.read_text().count("asked") if count.exists() else 0


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Start with no configuration."""
    return Desk(tmp_path)


def test_every_key_that_counts(desk: Desk) -> None:
    """Include, Match, tokens and first-wins are ssh's own; all that concerns us arrives."""
    desk.write("Match originalhost gpu1\n  Port 2222\n", "more")
    desk.write(
        f"Include {desk.folder}/mo*\n"
        "Host gpu?\n  HostName 10.0.0.1\n  User al\n  IdentityFile ~/keys/lab\n  IdentityFile /k\n"
        "  IdentitiesOnly yes\n  IdentityAgent /agent\n  HostKeyAlias gpu1.alias\n"
        '  UserKnownHostsFile /known "/known two"\n  GlobalKnownHostsFile none\n  StrictHostKeyChecking accept-new\n'
        "  ProxyJump me@b1:2200\n"
        "Host b1\n  HostName 10.1.0.1\n"
    )
    hop = desk.hop()
    assert (hop.host, hop.user, hop.port) == ("10.0.0.1", "al", 2222)
    assert hop.identities == ("~/keys/lab", "/k")
    assert (hop.identities_only, hop.agent, hop.host_key_alias) == (True, "/agent", "gpu1.alias")
    assert hop.known_hosts == ("/known", "/known two")
    assert hop.host_keys == "accept-new"
    bastion, node = hop.chain()
    assert (bastion.host, bastion.user, bastion.port, bastion.bastion) == (
        "10.1.0.1",
        "me",
        2200,
        "me@b1:2200",
    )
    assert (node, hop.needs_ssh) == (hop, False)


def test_the_inventory_beats_the_configuration(desk: Desk) -> None:
    """Each key by itself; and `Match` sees the inventory's user."""
    desk.write(
        "Match user boss\n  IdentityFile /boss\nHost *\n  User al\n  Port 2200\n  ProxyJump other\n"
        "  StrictHostKeyChecking accept-new\n  UserKnownHostsFile /known\n"
    )
    hop = desk.hop(user="boss", port=22, key="/k", jump="none", host_keys="strict", known_hosts="/mine")
    assert (hop.user, hop.port, hop.key, hop.jump) == ("boss", 22, "/k", None)
    assert (hop.host_keys, hop.known_hosts, hop.identities) == ("strict", ("/mine",), ("/boss",))
    desk.write("Host *\n  ProxyCommand nc %h %p\n")
    assert not desk.hop(jump="none").needs_ssh


@pytest.mark.parametrize("word", ["no", "off", "ask", "yes"])
def test_checking_is_never_below_strict(desk: Desk, word: str) -> None:
    """What would accept a changed key counts as strict."""
    desk.write(f"Host *\n  StrictHostKeyChecking {word}\n")
    assert desk.hop().host_keys == "strict"


def test_usual_keys_are_not_named_keys(desk: Desk) -> None:
    """ssh lists the files that it tries unasked; they are searched for as before."""
    desk.write("Host other\n  IdentityFile /k\n")
    assert desk.hop().identities is None


def test_one_of_the_usual_keys_may_be_named(desk: Desk) -> None:
    """Who names id_rsa alone does not want id_ed25519 to be shown."""
    desk.write("Host gpu*\n  IdentityFile ~/.ssh/id_rsa\n  IdentitiesOnly yes\n")
    assert desk.hop().identities == ("~/.ssh/id_rsa",)


def test_the_inventorys_key_is_for_the_bastion_too(desk: Desk) -> None:
    """Beside the usual ones; not where the configuration reports which key the bastion wants."""
    desk.write("Host named\n  IdentityFile /k\n")
    plain, named = (desk.hop(key="/cluster", jump=jump).jump for jump in ("plain", "named"))
    assert plain is not None
    assert named is not None
    assert (plain.offered, plain.identities) == ("/cluster", None)
    assert (named.offered, named.identities) == (None, ("/k",))


@pytest.mark.parametrize(
    "line",
    [
        "ProxyCommand nc %h %p",
        "ProxyJump a,b",
        "CertificateFile /c",
        "RevokedHostKeys /r",
        "ProxyJump gate\nHost gate\n  ProxyJump outer",
        "ProxyJump gate\nHost gate\n  ProxyCommand nc %h %p",
        "ProxyJump gate\nHost gate\n  RevokedHostKeys /r",
    ],
)
def test_ways_that_only_ssh_goes(desk: Desk, line: str) -> None:
    """Of the node and of the bastion before it; `none` is none of them."""
    desk.write(f"Host gpu1\n  {line}\n")
    assert desk.hop().needs_ssh
    desk.write("Host gpu1\n  ProxyCommand none\n  ProxyJump none\n  RevokedHostKeys none\n")
    assert not desk.hop().needs_ssh
    assert desk.hop(jump="a,b").needs_ssh
    assert desk.hop(proxy_command="nc %h %p").needs_ssh


def test_each_host_is_asked_for_once_a_command(desk: Desk) -> None:
    """Two hundred nodes behind one bastion, in parallel threads: one query for each and one for the bastion."""
    desk.write("Host *\n  Port 2200\n")
    ssh = Ssh(config=str(desk.folder / "config"), jump="gate")
    nodes = [Node(name=f"n{n}", index=n, host=f"gpu{n}", ssh=ssh) for n in range(200)]
    routes = desk.routes()
    for _ in range(2):
        routes.prepare(nodes)
    assert {routes.find(node).port for node in nodes} == {2200}
    assert desk.asked == 201


def test_a_match_that_writes_without_end_is_ended(desk: Desk) -> None:
    """Before it fills the memory of this machine."""
    much = "exec >&2; yes | head -c 16777216; while echo y; do sleep 0.1; done"  # not more, were it not ended
    desk.write(f'Match exec "{much}"\n  User nobody\n')
    assert "more than 4 MiB" in refusal(desk).evidence


def test_a_match_that_takes_too_long_is_ended(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the program that it runs: nothing of it is left behind."""
    monkeypatch.setattr("clusterctl.client.ssh.config.LIMIT", 3.0)
    alive = desk.folder / "alive"
    desk.write(f'Match exec "echo $$ > {alive}; sleep 300; true"\n  User nobody\n')
    with pytest.raises(Unreachable) as caught:
        desk.hop()
    assert (caught.value.code, "timed out" in caught.value.evidence) == ("CC-SSH-019", True)
    process = Path(f"/proc/{alive.read_text().strip()}")
    wait_until(lambda: not process.exists(), "whoever adopted it has collected it")


def test_no_ssh_program_is_reported_once(desk: Desk) -> None:
    """The inventory alone counts then."""
    nodes = [Node(name=f"n{n}", index=n, host=f"10.0.0.{n}", ssh=Ssh(user="al")) for n in range(3)]
    routes = desk.routes("/nonexistent/ssh")
    routes.prepare(nodes)
    assert [(routes.find(n).host, routes.find(n).user, routes.find(n).port) for n in nodes] == [
        (f"10.0.0.{n}", "al", 22) for n in range(3)
    ]
    assert len(desk.notices) == 1
    assert "ssh program" in desk.notices[0]


def refusal(desk: Desk, **ssh: object) -> ClusterctlError:
    """Return the error of a configuration that is of no use."""
    with pytest.raises(Unreachable) as caught:
        desk.hop(**ssh)
    assert (caught.value.code, caught.value.node) == ("CC-SSH-019", "n1")
    return caught.value


def test_a_broken_configuration_is_no_reason_to_guess(desk: Desk) -> None:
    """What ssh reports of it is shown."""
    desk.write("Host *\n  Prot 22\n")
    evidence = refusal(desk).evidence
    assert "prot" in evidence.lower()
    assert "debug1" not in evidence
    assert "OpenSSH_" not in evidence
    assert "No such file" in refusal(desk, config=str(desk.folder / "none")).evidence


@pytest.mark.parametrize(
    "line", ["HostName -oProxyCommand=x", "HostName a;b", "User -l", "User $(x)", "ProxyJump a,-J"]
)
def test_hostile_values_stay_out(desk: Desk, line: str) -> None:
    """A configuration must not smuggle in what an inventory may not hold."""
    desk.write(f"Host gpu1\n  {line}\n")
    refusal(desk)


def test_paths_with_spaces() -> None:
    """ssh prints files with one space between, quoted or not."""
    assert split_paths("/a b /c ~/d e") == ["/a b", "/c", "~/d e"]
