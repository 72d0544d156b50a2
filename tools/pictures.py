"""Take the pictures of a report from a real run: `python tools/pictures.py` writes `docs/pictures/report*.png`.

Four nodes of a practice cluster train, one of them loses its power, the spare takes its place, and a rank fails at the
end. One run, reported in both languages; the upper part of each report, as Chromium shows it. Needs Linux, `sshd`, a
torch in this Python, a font with Chinese signs, and what `./test --all` installs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(Path(__file__).parent)]

from browser import find_missing, start_browser  # noqa: E402 - of the tests
from record import COMMAND, new_folder  # noqa: E402 - next to this file

PICTURES = {"en": "report.png", "zh": "report.zh-CN.png"}
WIDTH, SCALE = 1000, 0.8  # pixels, and how much smaller the picture is
START = ("lab", "up", "--nodes", "4", "--nics", "eth0")
SCRIPT = """
import math, os, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank, attempt = dist.get_rank(), int(os.environ["CLUSTERCTL_ATTEMPT"])
gradients = torch.ones(400_000)
for step in range(1 if attempt == 1 else 451, 1000):  # as if from a checkpoint
    dist.all_reduce(gradients)
    gradients /= dist.get_world_size()
    time.sleep(0.02 + 0.02 * math.sin(step / 30) ** 2)
    if rank == 0 and step % 5 == 0:
        print(f"attempt {attempt} step {step} loss={2.3 * math.exp(-step / 250) + 0.1:.4f}", flush=True)
    if attempt == 2 and step == 900 and rank == 1:
        raise ValueError("label 11 is out of range")
"""
JOB = """
name: digits
script: train.py
nodes: 3
nproc_per_node: 1
backend: gloo
restart: {max: 1, spares: 1}
env: {OMP_NUM_THREADS: 1}
"""
CUT_AT, BREAK = "attempt 1 step 500 ", ("lab", "break", "gpu02", "power")
# The end of the last plots that the picture shows: the first row of those of all nodes.
SHOWN = """
const plot = document.querySelectorAll(".plots")[1].querySelector("figure");
return Math.ceil(plot.getBoundingClientRect().bottom + 12);
"""


def main() -> int:
    """Run the job, write a report in each language, and take a picture of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "pictures", help="folder of the pictures")
    folder: Path = parser.parse_args().to
    if missing := find_missing():
        print(f"missing: {', '.join(missing)}; `./test --all` installs them", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        pages = report_run(Path(work))
        with start_browser(Path(work) / "profile") as browser:
            for language, page in pages.items():
                browser.show(page, WIDTH)
                picture = folder / PICTURES[language]
                browser.take_picture(picture, browser.run(SHOWN), SCALE)
                print(f"{picture}: {picture.stat().st_size} bytes")
    return 0


def report_run(work: Path) -> dict[str, Path]:
    """Run the job in a lab, cut the power of a node, and give its report in each language."""
    project = work / "digits"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT, encoding="utf-8")
    (project / "job.yaml").write_text(JOB, encoding="utf-8")
    state = new_folder()
    environment = {**os.environ, "XDG_STATE_HOME": state, "PYTHONPATH": str(ROOT), "CLUSTERCTL_LANG": "en"}
    environment.pop("CLUSTERCTL_INVENTORY", None)
    try:
        subprocess.run([*COMMAND, *START], env=environment, check=True, capture_output=True)
        launch(project, environment)
        return {language: write_report(work, environment, language) for language in PICTURES}
    finally:
        down = [*COMMAND, "lab", "down", "--all", "-y"]
        subprocess.run(down, env=environment, check=False, capture_output=True)
        shutil.rmtree(state, ignore_errors=True)


def launch(project: Path, environment: dict[str, str]) -> None:
    """Launch the job and follow it to its end; the power is cut once it has trained for a while."""
    command = [*COMMAND, "launch", "job.yaml"]
    with subprocess.Popen(
        command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as following:
        assert following.stdout is not None
        for line in following.stdout:
            print(line, end="")
            if CUT_AT in line:
                subprocess.run([*COMMAND, *BREAK], env=environment, check=True, capture_output=True)


def write_report(work: Path, environment: dict[str, str], language: str) -> Path:
    """Write the report of the run in one language; the command returns 5, since one node does not respond."""
    page = work / f"{language}.html"
    command = [*COMMAND, "report", "-o", str(page)]
    shown = {**environment, "CLUSTERCTL_LANG": language}
    subprocess.run(command, env=shown, check=False, capture_output=True)
    page.stat()
    return page


if __name__ == "__main__":
    sys.exit(main())
