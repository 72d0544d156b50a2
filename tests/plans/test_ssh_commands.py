"""What ssh is called with: no word of the inventory becomes an option of its own, and nothing loosens the keys."""

from __future__ import annotations

import subprocess

import pytest

from clusterctl.plans.ssh import (
    REMOTE_COMMAND,
    ConnectionSharing,
    control_argv,
    master_argv,
    name_lab,
    parse_sharing,
    render_lab_command,
    render_options,
    session_argv,
    settings_argv,
    with_english_messages,
)
from clusterctl.specs.inventory.model import Node, Ssh

NOTHING = ConnectionSharing(None, persists=False)


def node(host: str = "gpu01", **ssh: object) -> Node:
    """Describe a node."""
    return Node(name="n", index=0, host=host, ssh=Ssh(**ssh))  # type: ignore[arg-type]  # of the test's own


def test_what_the_inventory_has_is_handed_on() -> None:
    """Key by key; what it leaves open is left to the user's own files."""
    assert render_options(node()) == []
    full = {
        "user": "me",
        "port": 2222,
        "key": "~/.ssh/k",
        "known_hosts": "/a b/known",
        "config": "/c",
        "jump": "b,c",
    }
    assert render_options(node(**full, host_keys="accept-new")) == [
        *("-o", "StrictHostKeyChecking=accept-new", "-l", "me", "-p", "2222"),
        *("-i", "~/.ssh/k", "-o", "IdentitiesOnly=yes"),
        *("-o", 'UserKnownHostsFile="/a b/known"', "-o", "GlobalKnownHostsFile=/dev/null"),
        *("-F", "/c", "-o", "ProxyJump=b,c"),
    ]
    assert render_options(node(proxy_command="nc %h %p")) == ["-o", "ProxyCommand=nc %h %p"]


@pytest.mark.parametrize("host_keys", [None, "strict"])
def test_unknown_host_keys_are_refused(host_keys: str | None) -> None:
    """Whatever the user's own files say, except that they accept new ones."""
    argv = master_argv(
        "ssh",
        "gpu01",
        render_options(node(host_keys=host_keys)),
        NOTHING,
        socket="/s",
        batch=True,
        timeout=10,
    )
    checking = [word for word in argv if word.startswith("StrictHostKeyChecking")]
    assert set(checking) == {"StrictHostKeyChecking=yes"}
    lenient = ConnectionSharing(None, persists=False, unknown_keys="accept-new")
    assert "StrictHostKeyChecking=yes" not in master_argv(
        "ssh", "gpu01", [], lenient, socket="/s", batch=True, timeout=10
    )


def test_every_call_ends_its_options_before_the_host() -> None:
    """A host can never be an option, and the remote command is the constant one."""
    master = master_argv("ssh", "gpu01", [], NOTHING, socket="/s", batch=True, timeout=10)
    assert settings_argv("ssh", "gpu01", [])[-2:] == ["--", "gpu01"]
    assert master[-3:] == ["--", "gpu01", "exit 0"]
    assert session_argv("ssh", node(), "/s")[-3:] == ["--", "gpu01", REMOTE_COMMAND]
    assert control_argv("ssh", "/s", "exit")[-2:] == ["--", "master"]


def test_asking_is_allowed_only_when_meant() -> None:
    """BatchMode stands in every call but the one that may ask."""
    asking = master_argv("ssh", "gpu01", [], NOTHING, socket=None, batch=False, timeout=10)
    assert "BatchMode=yes" not in asking
    assert "-S" not in asking  # the user's own files say where
    assert "BatchMode=yes" in session_argv("ssh", node(), "/s")


@pytest.mark.process
def test_ssh_understands_the_words() -> None:
    """The program that is here takes them all, a path with blanks and percent signs included."""
    calls = [
        master_argv(
            "ssh", "gpu01", ["-l", "u", "-p", "1"], NOTHING, socket="/tmp/a %h b", batch=True, timeout=10
        ),
        session_argv("ssh", node(), "/tmp/a %h b"),
    ]
    for argv in calls:
        done = subprocess.run(
            [argv[0], "-G", *argv[1:]], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
        )
        assert parse_sharing(done.stdout).control_path == "/tmp/a %h b"


@pytest.mark.parametrize(
    ("printed", "sharing"),
    [
        ("controlmaster false\ncontrolpersist no\nstricthostkeychecking ask\n", NOTHING),
        (
            "controlpath /home/me/.ssh/cm-1\ncontrolmaster auto\ncontrolpersist 600\n",
            ConnectionSharing("/home/me/.ssh/cm-1", persists=True),
        ),
        (
            "controlpath /p q\ncontrolmaster auto\ncontrolpersist no\nstricthostkeychecking accept-new\n",
            ConnectionSharing("/p q", persists=False, unknown_keys="accept-new"),
        ),
        ("controlpath none\ncontrolmaster auto\ncontrolpersist yes\n", NOTHING),
    ],
)
def test_what_ssh_reports_of_sharing(printed: str, sharing: ConnectionSharing) -> None:
    """A path counts where there is one; a master is left behind only where the user's files would leave it."""
    assert parse_sharing(printed) == sharing


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"LANG": "zh_CN.UTF-8"}, {"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "C"}),
        (
            {"LC_ALL": "zh_CN.UTF-8", "LANGUAGE": "zh", "HOME": "/root"},
            {"LC_CTYPE": "zh_CN.UTF-8", "LC_MESSAGES": "C", "HOME": "/root"},
        ),
        ({"LC_ALL": "", "LC_MESSAGES": "zh_CN"}, {"LC_MESSAGES": "C"}),
    ],
)
def test_messages_that_are_read_are_english(before: dict[str, str], after: dict[str, str]) -> None:
    """The language alone changes: names of files keep their encoding."""
    assert with_english_messages(before) == after


@pytest.mark.parametrize(
    ("host", "key", "proxy", "lab"),
    [
        (
            "10.77.0.2",
            "/s/lab/mine/id_ed25519",
            "nsenter -t 7 -n python /c/clusterctl/lab/netns/relay.py %h %p",
            "mine",
        ),
        ("127.77.2.1", "/s/lab/q/id_ed25519", None, "q"),
        ("10.77.0.2", "/home/ann/.ssh/id_ed25519", None, ""),
        ("10.77.0.2", None, "nc %h %p", ""),
    ],
)
def test_a_node_of_a_practice_cluster_is_known(host: str, key: str, proxy: str | None, lab: str) -> None:
    """By what its inventory has of the way to it; the command for it is short."""
    assert name_lab(host, key, proxy) == lab
    assert render_lab_command("mine", "ssh", "gpu02") == "clusterctl lab ssh --name mine gpu02"
