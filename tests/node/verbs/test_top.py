"""The verb `top`: samples of this machine, simulated GPUs, one that hangs, and a client that leaves."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

from session import Session
from simulated_smi import with_smi
from waiting import HANG, wait_until

from clusterctl.node.probe.utilization import UtilizationSampler, read_amd

TWO_GPUS = """cat <<'EOF'
0, NVIDIA H100 80GB HBM3, 97, 70123, 81559, 61, 455.31
1, NVIDIA H100 80GB HBM3, [N/A], 4, 81559, 33, [N/A]
EOF"""


def samples(session: Session, count: int) -> list[dict[str, Any]]:
    """Take the next samples; beats do not count."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        frame = session.receive()
        assert frame is not None
        header, _ = frame
        found += [header["sample"]] if "sample" in header else []
    return found


def answered(session: Session) -> dict[str, Any]:
    """Take the first sample after nvidia-smi has answered."""
    while True:
        (reported,) = samples(session, 1)
        if not reported["gpu_pending"]:
            return reported


def test_samples_of_this_machine() -> None:
    """Shares, bytes and rates, again and again; it ends when its stdin does."""
    with Session("top", {"interval": 0.2}) as session:
        first, second = samples(session, 2)
        session.hang_up()
        assert session.process.wait(HANG) == 0
    assert 0 <= first["cpu"] <= 1 and first["cores"] == os.cpu_count()
    assert 0 < second["memory_free"] < second["memory"]
    assert "lo" not in first["nics"] and set(first["nics"]) == set(second["nics"])


def test_what_the_processors_and_nics_did() -> None:
    """Work shows: a busy loop as a share of the processors."""
    gauges = UtilizationSampler()
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        pass
    assert (gauges.sample().cpu or 0) > 0.2 / (os.cpu_count() or 1)


def test_simulated_gpus(tmp_path: Path) -> None:
    """The table of a (simulated) nvidia-smi becomes numbers, with None where it knows none."""
    with Session("top", {"interval": 0.2}, env=with_smi(tmp_path, TWO_GPUS)) as session:
        reported = answered(session)
    assert reported["gpu_problem"] is None
    assert reported["gpus"][0] == {
        "index": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "busy": 97,
        "memory_used": 70123,
        "memory": 81559,
        "temperature": 61,
        "power": 455.31,
    }
    assert (reported["gpus"][1]["busy"], reported["gpus"][1]["power"]) == (None, None)


def test_simulated_gpu_that_hangs(tmp_path: Path) -> None:
    """The other gauges go on, and what hangs ends with the client."""
    mark = f"8{os.getpid()}"
    with Session("top", {"interval": 0.2}, env=with_smi(tmp_path, f"sleep {mark} & sleep {mark}")) as session:
        reported = samples(session, 3)
        session.hang_up()
        assert session.process.wait(HANG) == 0
    assert all(one["gpu_pending"] and one["gpus"] == [] for one in reported)
    pgrep = [
        "pgrep",
        "-f",
        f"sleep {mark}",
    ]  # killed first, but the kernel may take a moment
    wait_until(
        lambda: subprocess.run(pgrep, stdout=subprocess.DEVNULL, check=False).returncode == 1, "its end"
    )


def test_simulated_gpu_that_fails(tmp_path: Path) -> None:
    """nvidia-smi's own words are passed on."""
    with Session("top", {"interval": 0.2}, env=with_smi(tmp_path, "echo 'GPU is lost'; exit 15")) as session:
        reported = answered(session)
    assert (reported["gpus"], reported["gpu_problem"]) == ([], "GPU is lost")


def test_simulated_gpus_of_amd(tmp_path: Path) -> None:
    """AMD's are read from the kernel's files, here from a made-up tree."""
    device = tmp_path / "card1" / "device"
    (device / "hwmon" / "hwmon3").mkdir(parents=True)
    (tmp_path / "card1-DP-1").mkdir()
    for name, text in {
        "gpu_busy_percent": 88,
        "mem_info_vram_total": 64 << 30,
        "mem_info_vram_used": 1 << 30,
    }.items():
        (device / name).write_text(f"{text}\n")
    (device / "hwmon" / "hwmon3" / "temp1_input").write_text("54000\n")
    (reported,) = read_amd(str(tmp_path))
    assert (reported.busy, reported.memory, reported.memory_used, reported.temperature) == (
        88,
        65536,
        1024,
        54,
    )
