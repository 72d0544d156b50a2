"""The probe, run as a node runs it: booted from stdin, nothing installed."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from counting import check_growth
from session import BOOT, PAYLOAD, Session
from simulated_smi import with_smi
from waiting import wait_until

from clusterctl.node.probe import network, python
from clusterctl.protocol.messages.facts import ActivateResult, Route
from clusterctl.protocol.messages.record import to_json

SYSTEM_PYTHON = "/usr/bin/python3"
Probe = Callable[..., dict[str, Any]]


def probe(env: dict[str, str] | None = None, command: tuple[str, ...] = (), **request: Any) -> dict[str, Any]:
    """Ask for the facts of this machine, or of what `command` puts the interpreter into."""
    with Session("probe", request, env=env, command=command) as session:
        frames = session.frames()
        assert [sorted(header) for header, _ in frames] == [["facts"], ["end"]], frames
        assert session.stderr_so_far() == b""
        return dict(frames[0][0]["facts"])


def problems(facts: dict[str, Any]) -> dict[str, str]:
    """Give the questions that were not answered."""
    return {
        key: value["problem"]
        for key, value in facts.items()
        if isinstance(value, dict) and "problem" in value
    }


def nic(facts: dict[str, Any], name: str) -> dict[str, Any]:
    """Give one NIC's facts."""
    return next(dict(one) for one in facts["nics"] if one["name"] == name)


def with_module(folder: Path, files: dict[str, str]) -> dict[str, str]:
    """Put files on the interpreter's path and give the environment for it."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_facts_of_this_machine() -> None:
    """What is reported is what this machine reports of itself by other means."""
    before = time.time()
    facts = probe(peers={"me": "127.0.0.1"}, workdir="/tmp", host="127.0.0.1")
    assert problems(facts) == {}
    assert facts["interpreter"]["version"] == platform.python_version()
    assert Path(sys.executable).samefile(facts["interpreter"]["executable"])
    assert facts["machine"]["hostname"] == socket.gethostname()
    assert [one["name"] for one in facts["nics"]] == [name for _, name in socket.if_nameindex()]
    assert facts["routes"]["me"] == to_json(Route(address="127.0.0.1", source="127.0.0.1", nic="lo"))
    assert facts["account"]["uid"] == os.getuid()
    assert before < facts["clock"]["received"] <= facts["clock"]["answered"] < time.time()
    assert abs(facts["tmp_disk"]["free"] - shutil.disk_usage("/tmp").free) < 1 << 30


@pytest.mark.parametrize(("value", "status"), [("7", 7), ("", None), ("x", None)])
def test_a_failed_activate_is_reported(value: str, status: int | None) -> None:
    """The variable that the bootstrap left is a fact; without it there is nothing to tell."""
    facts = probe(env={**os.environ, "CLUSTERCTL_ACTIVATE_STATUS": value})
    assert facts["activate"]["status"] == status


HANGS_FOR = f"3600.{os.getpid()}"  # seconds, by which what hangs is found


def tool(path: Path, prints: str) -> Path:
    """Write a program that prints something and then hangs in a program that it has started."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{prints}'\nexec >/dev/null\nsleep {HANGS_FOR}\n")
    path.chmod(0o755)
    return path


def test_what_activate_gave(tmp_path: Path) -> None:
    """Paths, environment, toolkit and compiler of what is first on PATH, in no time; all absent without activate."""
    cc = tool(tmp_path / "bin" / "cc", "12.4.1")
    nvcc = tool(tmp_path / "cuda-12.6" / "bin" / "nvcc", "Cuda compilation tools, release 9.9, V9.9.1")
    path = f"{cc.parent}:{nvcc.parent}:{os.defpath}"
    active = {
        "CLUSTERCTL_ACTIVATE_STATUS": "0",
        "PATH": path,
        "VIRTUAL_ENV": sys.prefix,
        "LD_LIBRARY_PATH": "/a::/b",
    }

    reported = probe(env=active)["activate"]  # nothing waits for a compiler to end
    (tmp_path / "cuda-12.6" / "version.json").write_text(
        '{"cuda": {"name": "CUDA SDK", "version": "12.6.3"}}'
    )
    again = probe(env={**active, "CONDA_PREFIX": "/opt/conda", "VIRTUAL_ENV": ""})["activate"]

    assert reported["path"] == path.split(":")
    assert reported["libraries"] == ["/a", "/b"]
    assert (reported["venv"], reported["conda"], reported["inside"]) == (sys.prefix, None, True)
    assert (reported["nvcc"], reported["cuda"]) == (str(nvcc), "9.9")
    assert (reported["compiler"], reported["compiler_version"]) == (str(cc), "12.4.1")
    assert (again["conda"], again["inside"], again["cuda"]) == ("/opt/conda", False, "12.6.3")
    assert probe(env={"PATH": path})["activate"] == to_json(ActivateResult())
    pgrep = ["pgrep", "-f", f"sleep {HANGS_FOR}"]
    wait_until(
        lambda: subprocess.run(pgrep, stdout=subprocess.DEVNULL, check=False).returncode == 1,
        "the end of what the compilers have started",
    )


def test_loopback_is_described() -> None:
    """The one NIC that every machine has."""
    lo = nic(probe(), "lo")
    assert (lo["kind"], lo["up"], lo["running"], lo["physical"]) == ("loopback", True, True, False)
    assert {"ip": "127.0.0.1", "prefix": 8, "family": 4, "label": "lo"} in lo["addresses"]


def test_bare_environment() -> None:
    """No PATH, no HOME, no locale: as bare as a login can be."""
    facts = probe(env={})
    assert problems(facts) == {}
    assert facts["account"]["home"].startswith("/")
    assert facts["environment"] == {}


def test_nothing_is_written(tmp_path: Path) -> None:
    """The home and working directory are as they were, and the missing one is not made."""
    probe(
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)},
        workdir="~/.clusterctl",
    )
    assert list(tmp_path.rglob("*")) == []


def test_workdir_that_is_missing(tmp_path: Path) -> None:
    """The nearest directory above is looked at instead."""
    workdir = probe(env={**os.environ, "HOME": str(tmp_path)}, workdir="~/a/b", payload="ab12")["workdir"]
    assert (workdir["path"], workdir["exists"], workdir["nearest"]) == (
        f"{tmp_path}/a/b",
        False,
        str(tmp_path),
    )
    assert workdir["writable"] and not workdir["payload"]


def test_workdir_with_the_payload(tmp_path: Path) -> None:
    """The payload that a launch would send is seen to be there."""
    (tmp_path / "bin" / "ab12").mkdir(parents=True)
    (tmp_path / "bin" / "ab12" / "payload.zip").touch()
    assert probe(workdir=str(tmp_path), payload="ab12")["workdir"]["payload"]
    assert not probe(workdir=str(tmp_path), payload="cd34")["workdir"]["payload"]


@pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("runuser"), reason="needs root to become another user"
)
@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason="needs a Python that others may run")
def test_ordinary_user() -> None:
    """An ordinary user gets the same answers and sees what may not be written."""
    facts = probe(command=("runuser", "-u", "nobody", "--", SYSTEM_PYTHON, "-c", BOOT), workdir="/root/x")
    assert problems(facts).keys() <= {"workdir", "workdir_disk"}
    assert facts["account"]["user"] == "nobody"
    assert len(facts["nics"]) == len(socket.if_nameindex())


def test_torch_is_read_and_not_imported(tmp_path: Path) -> None:
    """A torch that cannot be imported is still described."""
    files = {
        "torch/__init__.py": "raise SystemExit('imported')",
        "torch/version.py": "__version__ = '2.7.1+cu126'\ncuda: Optional[str] = '12.6'\nhip = None\n",
        "torch-2.7.0.dist-info/METADATA": "",
        "nvidia_nccl_cu12-2.26.2.dist-info/METADATA": "",
        "nvidia_cudnn_cu12-9.5.1.17.dist-info/METADATA": "",
        "torchvision-0.20.dist-info/METADATA": "",
    }
    facts = probe(env=with_module(tmp_path, files))
    assert facts["torch"]["version"] == "2.7.1+cu126"
    assert (facts["torch"]["cuda"], facts["torch"]["hip"]) == ("12.6", None)
    assert facts["torch"]["installed"] == "2.7.0"
    assert facts["torch"]["location"] == str(tmp_path / "torch")
    assert facts["packages"]["nvidia-nccl-cu12"] == "2.26.2"
    assert facts["packages"]["nvidia-cudnn-cu12"] == "9.5.1.17"
    assert "torchvision" not in facts["packages"]


def test_torch_is_missing() -> None:
    """An interpreter without torch reports it."""
    facts = probe(command=(sys.executable, "-S", "-c", BOOT))
    assert facts["torch"] is None and facts["packages"] == {}


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
@pytest.mark.parametrize(("number", "version"), [(22602, "2.26.2"), (2708, "2.7.8"), (23203, "2.32.3")])
def test_nccl_is_asked(tmp_path: Path, number: int, version: str) -> None:
    """The library's own word is reported; the number has had two forms."""
    library = fake_nccl(tmp_path, f"*version = {number}; return 0;")
    facts = probe(env=with_module(tmp_path, {}))
    assert facts["nccl"] == {"library": str(library), "version": version, "preloaded": False, "others": []}


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_nccls_that_lie_in_the_way(tmp_path: Path) -> None:
    """What a variable leads to is asked too; torch's own by another name, and what is no library, are left out."""
    own = fake_nccl(tmp_path / "own", "*version = 22602; return 0;")
    other = fake_nccl(tmp_path / "other", "*version = 21803; return 0;")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "libnccl.so.2").write_text("text")
    paths = f"/nowhere:{own.parent}:{tmp_path / 'broken'}:{other.parent}"
    env = {**with_module(tmp_path / "own", {}), "LD_LIBRARY_PATH": paths, "VLLM_NCCL_SO_PATH": str(own)}
    reported = probe(env=env)["nccl"]
    assert reported["version"] == "2.26.2"
    assert reported["others"] == [{"by": "LD_LIBRARY_PATH", "library": str(other), "version": "2.18.3"}]


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_nccl_that_crashes_costs_one_answer(tmp_path: Path) -> None:
    """A library that ends its process does not end the probe."""
    fake_nccl(tmp_path, "__builtin_trap();")
    assert problems(probe(env=with_module(tmp_path, {}))) == {"nccl": "loading the library crashed"}


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_nccl_that_hangs_costs_one_answer(tmp_path: Path) -> None:
    """A library that never returns is given up, and its process is ended."""
    fake_nccl(tmp_path, "for (;;) pause();")
    facts = probe(env=with_module(tmp_path, {}))
    assert problems(facts) == {"nccl": "no answer within 1.5 s"}


def test_nccl_that_is_no_library(tmp_path: Path) -> None:
    """A file that cannot be loaded is a problem of its own."""
    facts = probe(env=with_module(tmp_path, {"nvidia/nccl/lib/libnccl.so.2": "text"}))
    assert problems(facts)["nccl"].startswith("OSError: ")


def fake_nccl(folder: Path, body: str) -> Path:
    """Compile a library that looks like NCCL's."""
    library = folder / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    library.parent.mkdir(parents=True)
    source = folder / "nccl.c"
    source.write_text(f"#include <unistd.h>\nint ncclGetVersion(int *version) {{ {body} }}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


def test_all_packages(tmp_path: Path) -> None:
    """Every package is reported by its normalised name, the first on the path before others, with a digest of all."""
    folders = ["Foo_Bar-1.2+local.dist-info", "old.style-3-py3.11.egg-info", "no_version.dist-info"]
    env = with_module(tmp_path, {f"{folder}/METADATA": "" for folder in folders})
    bare = probe()["installed"]
    reported = probe(env=env)["installed"]
    assert set(reported["packages"]) - set(bare["packages"]) == {"foo-bar 1.2+local", "old-style 3"}
    assert reported["packages"] == sorted(reported["packages"]) and reported["digest"] != bare["digest"]


def test_versions_are_reported_without_an_import() -> None:
    """torch, its libraries and all packages are reported from files; torch is not imported."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from clusterctl.node.probe import python as probe_packages, system as probe_system, python as probe_torch\n"
        "probe_torch.torch(), probe_torch.packages(), probe_torch._nccl(), probe_packages.installed()\n"
        "probe_system.interpreter(), probe_system.platform()\n"
        "print('torch' in sys.modules)"
    )
    words = [sys.executable, "-c", script, str(PAYLOAD.parents[1])]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "False\n"


def test_the_work_grows_with_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times the packages are about ten times the work: each is looked at once."""
    for number in (40, 400):
        for package in range(number):
            (tmp_path / str(number) / f"package{package}-1.0.dist-info").mkdir(parents=True)

    def look(number: int) -> None:
        monkeypatch.setattr(sys, "path", [str(tmp_path / str(number))])
        assert len(python.installed().packages) == number
        python.packages()

    check_growth(look, 400)


TWO_GPUS = """cat <<'EOF'
0, GPU-a, NVIDIA H100 80GB HBM3, 560.35.03, 81559, 4, Default, 00000000:18:00.0, 9.0, Disabled, 0
1, GPU-b, NVIDIA H100 80GB HBM3, 560.35.03, 81559, 70123, Default, 00000000:2A:00.0, 9.0, [N/A], 2
EOF"""


def test_simulated_gpus(tmp_path: Path) -> None:
    """The table of a (simulated) nvidia-smi becomes devices with numbers where numbers stand."""
    gpus = probe(env=with_smi(tmp_path, TWO_GPUS))["gpus"]
    assert (gpus["vendor"], gpus["count"], gpus["driver"], gpus["error"]) == ("nvidia", 2, "560.35.03", None)
    assert gpus["devices"][1] == {
        "index": 1,
        "uuid": "GPU-b",
        "name": "NVIDIA H100 80GB HBM3",
        "driver": "560.35.03",
        "memory": 81559,
        "memory_used": 70123,
        "compute_mode": "Default",
        "bus": "00000000:2A:00.0",
        "capability": "9.0",
        "mig": None,
        "ecc_errors": 2,
    }


MISMATCH = ["Failed to initialize NVML: Driver/library version mismatch", "NVML library version: 580.95"]
LOST = "Unable to determine the device handle for GPU0000:41:00.0: Unknown Error"
OLD_DRIVER = """case "$1" in *compute_cap*) echo 'Field "compute_cap" is not a valid field to query.'; exit 2
esac
echo '0, GPU-a, Tesla V100, 450.80.02, 16160, 0, Default'"""


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        (OLD_DRIVER, (1, "450.80.02", None)),  # asked for the older fields only
        (f"echo '{MISMATCH[0]}'; echo '{MISMATCH[1]}'; exit 18", (0, None, " ".join(MISMATCH))),
        (f"echo '{LOST}'\n{TWO_GPUS}", (2, "560.35.03", LOST)),  # a complaint between the rows
    ],
    ids=["old driver", "mismatch", "lost GPU"],
)
def test_simulated_trouble(tmp_path: Path, script: str, answer: tuple[int, str | None, str | None]) -> None:
    """What a (simulated) nvidia-smi complains of is reported in one line, beside the GPUs that are left."""
    gpus = probe(env=with_smi(tmp_path, script))["gpus"]
    assert (gpus["count"], gpus["driver"], gpus["error"]) == answer


def test_simulated_hang(tmp_path: Path) -> None:
    """A (simulated) nvidia-smi that hangs is killed with its children, and only its answer is missing."""
    mark = f"9{os.getpid()}"
    facts = probe(env=with_smi(tmp_path, f"sleep {mark} & sleep {mark}"))
    assert facts["gpus"]["error"] == "nvidia-smi gave no answer within 5 s"
    assert problems(facts) == {}
    pgrep = ["pgrep", "-f", f"sleep {mark}"]
    wait_until(
        lambda: subprocess.run(pgrep, stdout=subprocess.DEVNULL, check=False).returncode == 1, "its end"
    )


def test_names_that_do_not_resolve() -> None:
    """A name no one knows costs the route to that peer only."""
    facts = probe(peers={"a": "no-such-host.invalid", "b": "127.0.0.1"}, host="no-such-host.invalid")
    assert "problem" in facts["routes"]["a"] and facts["routes"]["b"]["nic"] == "lo"
    assert facts["address"]["addresses"] == [] and facts["address"]["error"]


def test_leftovers_and_nothing_else_of_the_environment() -> None:
    """Variables that steer a job are reported; all others stay on the node."""
    env = {**os.environ, "PET_NNODES": "2", "NCCL_DEBUG": "INFO", "RANKING": "1", "MY_TOKEN": "secret"}
    reported = probe(env=env)["environment"]
    assert reported["PET_NNODES"] == "2" and reported["NCCL_DEBUG"] == "INFO"
    assert "RANKING" not in reported and "MY_TOKEN" not in reported


def test_settings_files_of_nccl(tmp_path: Path) -> None:
    """~/.nccl.conf steers NCCL unseen; its settings are reported without the comments."""
    (tmp_path / ".nccl.conf").write_text("# old\nNCCL_SOCKET_IFNAME=eth7\n\n")
    facts = probe(env={**os.environ, "HOME": str(tmp_path)})
    assert facts["nccl_conf"][str(tmp_path / ".nccl.conf")] == ["NCCL_SOCKET_IFNAME=eth7"]


NETNS = ("unshare", "-rn") if os.getuid() else ("unshare", "-n")
CAN_UNSHARE = (
    shutil.which("ip") and subprocess.run([*NETNS, "true"], capture_output=True, check=False).returncode == 0
)


def in_namespace(script: str) -> dict[str, Any]:
    """Probe inside a network namespace of its own, prepared by a script."""
    whole = f'set -e; {script}; exec "$0" -c "$1"'
    return probe(
        command=(*NETNS, "sh", "-c", whole, sys.executable, BOOT), peers={"b": "10.77.0.2", "c": "10.99.0.1"}
    )


@pytest.mark.skipif(not CAN_UNSHARE, reason="needs iproute2 and network namespaces")
def test_nics_of_another_namespace() -> None:
    """/sys of the machine outside does not mix with the NICs inside."""
    facts = in_namespace(
        "ip link set lo up; ip link add meth919 type veth peer name meth920;"
        "ip link set meth919 mtu 8000 up; ip link set meth920 up;"
        "ip addr add 10.77.0.1/24 dev meth919 label meth919:x; ip addr add 10.77.0.9/24 dev meth919"
    )
    found = nic(facts, "meth919")
    assert [one["name"] for one in facts["nics"]] == ["lo", "meth920", "meth919"]
    assert (found["kind"], found["mtu"], found["physical"]) == ("veth", 8000, False)
    assert (found["up"], found["running"]) == (True, True)
    assert [one["ip"] for one in found["addresses"] if one["family"] == 4] == ["10.77.0.1", "10.77.0.9"]
    assert facts["routes"]["b"] == to_json(Route(address="10.77.0.2", source="10.77.0.1", nic="meth919"))
    assert facts["routes"]["c"]["problem"] == "Network is unreachable"
    assert [row["to"] for row in facts["routing"]] == ["10.77.0.0"]


@pytest.mark.skipif(not CAN_UNSHARE, reason="needs iproute2 and network namespaces")
def test_nic_that_is_down() -> None:
    """A NIC that is off, and one that is on without a link, are reported apart."""
    facts = in_namespace(
        "ip link add eth1 type veth peer name eth2; ip link set eth1 up; ip addr add 10.77.0.1/24 dev eth1"
    )
    assert (nic(facts, "eth1")["up"], nic(facts, "eth1")["running"]) == (True, False)
    assert (nic(facts, "eth2")["up"], nic(facts, "eth2")["running"]) == (False, False)


@pytest.mark.skipif(not CAN_UNSHARE, reason="needs iproute2 and network namespaces")
def test_addresses_of_every_kind() -> None:
    """Of two ends of a link ours is reported, a label keeps its NIC, and IPv6 is there with its prefix."""
    facts = in_namespace(
        "ip link set lo up; ip link add tun0 type veth peer name far; ip link set tun0 up;"
        "ip addr add 10.77.0.1 peer 10.77.0.2/32 dev tun0; ip addr add 10.78.0.1/16 dev tun0 label tun0:old;"
        "ip addr add fd00::7/80 dev tun0 nodad"
    )
    reported = [
        (one["ip"], one["prefix"], one["family"], one["label"]) for one in nic(facts, "tun0")["addresses"]
    ]
    assert reported[:3] == [
        ("10.77.0.1", 32, 4, "tun0"),
        ("10.78.0.1", 16, 4, "tun0:old"),
        ("fd00::7", 80, 6, "tun0"),
    ]
    assert facts["routes"]["b"] == to_json(Route(address="10.77.0.2", source="10.77.0.1", nic="tun0"))


def test_addresses_without_netlink(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sandbox that knows no netlink the first address of each NIC is reported all the same."""

    def refuse() -> NoReturn:
        raise OSError("no such family")

    whole = {name: rows[0] for name, rows in network.addresses().items() if rows[0].family == 4}
    monkeypatch.setattr(network, "addresses", refuse)
    found = {one.name: one.addresses for one in network.nics() if one.addresses}
    assert {name: rows[0] for name, rows in found.items()} == whole
    assert whole["lo"].ip == "127.0.0.1"
