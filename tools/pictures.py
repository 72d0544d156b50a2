"""Take the pictures of a report and of the page of `ui` from a real run: `docs/pictures/report*.png` and `ui*.png`.

Four nodes of a practice cluster train, one of them loses its power, the spare takes its place, and a rank fails at the
end. One run, shown in both languages; the upper part of each page, as Chromium shows it. Needs Linux, `sshd`, a
torch in this Python, a font with Chinese signs, and what `./test --all` installs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(Path(__file__).parent)]

from browser import Browser, find_missing, start_browser  # noqa: E402 - of the tests
from record import COMMAND, new_folder  # noqa: E402 - next to this file

PICTURES = {"en": "report.png", "zh": "report.zh-CN.png"}
PAGES = {"en": "ui.png", "zh": "ui.zh-CN.png"}
WIDTH, SCALE = 1000, 0.8  # pixels, and how much smaller the picture is
START = ("lab", "up", "--nodes", "4", "--nics", "eth0")
SCRIPT = """
import math, os, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank, attempt = dist.get_rank(), int(os.environ["CLUSTERCTL_ATTEMPT"])
gradients = torch.ones(400_000)
for step in range(1 if attempt == 1 else 451, 2300):  # as if from a checkpoint
    dist.all_reduce(gradients)
    gradients /= dist.get_world_size()
    time.sleep(0.02 + 0.02 * math.sin(step / 30) ** 2)
    if rank == 0 and step % 5 == 0:
        print(f"attempt {attempt} step {step} loss={2.3 * math.exp(-step / 250) + 0.1:.4f}", flush=True)
    if attempt == 2 and step == 2200 and rank == 1:
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
SHOWN_AT = "attempt 2 step 500 "
# The end of the last plots that the picture shows: the first row of those that compare the nodes.
SHOWN = """
const plot = document.querySelector(".plot.small");
return Math.ceil(plot.getBoundingClientRect().bottom + 12);
"""
# The same of the page of `ui`, whose first plot is the loss.
SHOWN_OF_UI = SHOWN.replace(".plot.small", ".plot")


def main() -> int:
    """Run the job, write a report in each language, and take a picture of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "pictures", help="folder of the pictures")
    folder: Path = parser.parse_args().to
    if missing := find_missing():
        print(f"missing: {', '.join(missing)}; `./test --all` installs them", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, start_browser(Path(work) / "profile") as browser:
        for language, page in report_run(Path(work), browser, folder).items():
            browser.show(page, WIDTH)
            browser.take_picture(folder / PICTURES[language], browser.run(SHOWN), SCALE)
    return 0


def report_run(work: Path, browser: Browser, folder: Path) -> dict[str, Path]:
    """Run the job in a lab, cut the power of a node, show it in `ui`, and give its report in each language."""
    project = work / "digits"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT, encoding="utf-8")
    (project / "job.yaml").write_text(JOB, encoding="utf-8")
    state = new_folder()
    environment = {**os.environ, "XDG_STATE_HOME": state, "PYTHONPATH": str(ROOT), "CLUSTERCTL_LANG": "en"}
    environment.pop("CLUSTERCTL_INVENTORY", None)
    try:
        subprocess.run([*COMMAND, *START], env=environment, check=True, capture_output=True)
        launch(project, environment, lambda: show_pages(browser, environment, folder))
        return {language: write_report(work, environment, language) for language in PICTURES}
    finally:
        down = [*COMMAND, "lab", "down", "--all", "-y"]
        subprocess.run(down, env=environment, check=False, capture_output=True)
        shutil.rmtree(state, ignore_errors=True)


def launch(project: Path, environment: dict[str, str], show: Callable[[], None]) -> None:
    """Launch the job and follow it to its end; the power is cut once it has trained for a while, later it is shown."""
    command = [*COMMAND, "launch", "job.yaml"]
    with subprocess.Popen(
        command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as following:
        assert following.stdout is not None
        for line in following.stdout:
            print(line, end="")
            if CUT_AT in line:
                subprocess.run([*COMMAND, *BREAK], env=environment, check=True, capture_output=True)
            elif SHOWN_AT in line:
                show()


def show_pages(browser: Browser, environment: dict[str, str], folder: Path) -> None:
    """Take a picture of the page of the run in each language, while it lives."""
    for language, name in PAGES.items():
        command, shown = [*COMMAND, "ui", "--no-open"], {**environment, "CLUSTERCTL_LANG": language}
        with subprocess.Popen(command, env=shown, stdout=subprocess.PIPE, text=True) as page:
            assert page.stdout is not None
            try:
                browser.show(next(line.strip() for line in page.stdout if line.startswith("http://")), WIDTH)
                browser.wait_for("document.querySelector('#runs a')", "the run in the list")
                browser.run("document.querySelector('#runs a').click()")
                browser.wait_for(
                    "document.querySelector('#plots figure') && lines.firstChild", "its plots and lines"
                )
                browser.take_picture(folder / name, browser.run(SHOWN_OF_UI), SCALE)
            finally:
                page.terminate()


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
