"""How often `diagnose` names the right rank and reason: real hangs of three ranks on a lab, and a healthy run.

    python tests/bench/hang.py [-r ROUNDS] [--healthy N] [--busy PAIRS] [--start exec|fork] [CASE ...]

Of each case: right answers of how many, and the time in which the ranks answered and the whole command took. The case
`healthy` asks a run that goes on N times, and no answer may be that it hangs; `straggler` asks `--slow`; `partition`
cuts a node's training network, which its run does not survive. Sizes that differ are no case: Gloo aborts. `--busy`
compares the steps per second of ranks that only communicate, with `diagnose: false` and `true`, in pairs whose order
alternates. Not part of `./test`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterctl.lab import labs
from clusterctl.lab.build import LabOptions, up
from clusterctl.lab.labs import Lab
from clusterctl.lab.layout import DEFAULT_NICS

COMMAND = (sys.executable, "-m", "clusterctl")
ASK_LIMIT = 180.0  # seconds from the launch to the answer
SCRIPT = """
import datetime, os, re, signal, threading, time
import torch, torch.distributed as dist

case = os.environ["CASE"]

def load_batch(step):
    here = rank == 1 and step == 5
    if here and case == "loader":
        time.sleep(10000)
    elif here and case == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    elif here and case == "gil":
        re.match(r"(a+)+$", "a" * 60 + "b")
    elif here and case == "pipe":
        os.mkfifo("pipe")
        open("pipe").read()
    elif here and case == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif here and case == "zombie":
        threading.Thread(target=time.sleep, args=(10000,)).start()
        raise RuntimeError("out of memory")
    time.sleep(0.1 + (0.03 if case == "straggler" and rank == 1 else 0.0))

def train_step(step):
    ones = torch.ones(1000)
    here = rank == 1 and step == 5
    if here and case == "skipped":
        dist.barrier()
    elif here and case == "order":
        dist.broadcast(ones, 0)
    elif step == 5 and case == "groups":
        for group in (first, second) if rank == 0 else (second, first):
            dist.all_reduce(ones, group=group)
    else:
        dist.all_reduce(ones)

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=1000))
rank = dist.get_rank()
first, second = (dist.new_group([0, 1], group_desc=name) for name in ("tp", "dp"))
if case == "groups" and rank < 2:
    dist.all_reduce(torch.ones(1), group=first)
    dist.all_reduce(torch.ones(1), group=second)
if case == "busy":
    for steps in (300, 3000):  # the first are not counted
        began = time.monotonic()
        for step in range(steps):
            dist.all_reduce(torch.ones(1000))
    print(f"{steps / (time.monotonic() - began):.1f} steps per second", flush=True)
    dist.destroy_process_group()
    raise SystemExit
for step in range(1000000):
    load_batch(step)
    train_step(step)
"""


@dataclass(frozen=True)
class Expected:
    """The code, the ranks and a word that the answer must have."""

    code: str
    suspects: tuple[int, ...]
    word: str = ""


CASES: Mapping[str, Expected] = {
    "loader": Expected("CC-HANG-004", (1,), "in load_batch()"),
    "lock": Expected("CC-HANG-004", (1,), "in load_batch()"),
    "pipe": Expected("CC-HANG-004", (1,), "in load_batch()"),
    "gil": Expected("CC-HANG-004", (1,), "GIL"),
    "stopped": Expected("CC-HANG-001", (1,)),
    "zombie": Expected("CC-HANG-003", (1,), "out of memory"),
    "skipped": Expected("CC-HANG-005", (1,), "barrier"),
    "order": Expected("CC-HANG-005", (1,), "broadcast"),
    "groups": Expected("CC-HANG-005", (0, 1), "each waits for the other"),
}
STRAGGLER = Expected("CC-HANG-011", (1,))  # of `diagnose --slow`
GOES_ON = ("healthy", "straggler")
PARTITION = "partition"  # the nodes end the run by themselves, and say which one is lost


@dataclass
class Tally:
    """What came of a case; times in seconds."""

    right: int
    asked: int
    answered: Sequence[float]
    whole: Sequence[float]
    wrong: Sequence[str]


def main() -> None:
    """Run the cases and print a row of each."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("-r", "--rounds", type=int, default=10)
    options.add_argument("--healthy", type=int, default=100, metavar="N")
    options.add_argument("--busy", type=int, default=0, metavar="PAIRS")
    options.add_argument("--start", choices=("exec", "fork"), default="fork")
    options.add_argument("cases", nargs="*", metavar="CASE", default=[*CASES, *GOES_ON, PARTITION])
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="cl-hang-") as folder:
        state = Path(folder) / "lab"
        lab = up(state, LabOptions(count=3, nics=DEFAULT_NICS, bound=True))
        try:
            job = write_job(Path(folder) / "job", chosen.start)
            print("case        right     ranks answer  command")
            for case in chosen.cases:
                if case == PARTITION:
                    tally = run_partition(lab, job, chosen.rounds)
                else:
                    tally = run_case(lab, job, case, chosen.rounds, chosen.healthy)
                print(render(case, tally), flush=True)
            if chosen.busy:
                print(render_busy(run_busy(lab, job, chosen.busy)))
        finally:
            labs.down(state)


def write_job(folder: Path, start: str) -> Path:
    """Write the script and its job."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT, encoding="ascii")
    job = {"name": "hang", "script": "train.py", "nproc_per_node": 1, "backend": "gloo", "grace": "1s"}
    (folder / "job.yaml").write_text(json.dumps({**job, "start": start, "zombie_after": 0}), encoding="ascii")
    return folder / "job.yaml"


def run_case(lab: Lab, job: Path, case: str, rounds: int, healthy: int) -> Tally:
    """Let it hang so often, or ask one run that goes on so often."""
    answers: list[tuple[bool, str, float, float]] = []
    for _ in range(1 if case in GOES_ON else rounds):
        launched = cctl(lab, "launch", "-d", "--ignore-checks", "--set", f"env.CASE={case}", str(job))
        if launched.returncode:
            raise SystemExit(launched.stderr)
        try:
            if case in GOES_ON:
                wait_for_answer(lab, "CC-HANG-009")
                answers += [judge_answer(*diagnose(lab), None) for _ in range(healthy)]
                if case == "straggler":
                    answers = [judge_answer(*ask_slow(lab), STRAGGLER) for _ in range(rounds)]
            else:
                document, seconds = wait_for_answer(lab, CASES[case].code)
                answers.append(judge_answer(document, seconds, CASES[case]))
        finally:
            cctl(lab, "stop", "-y")
    right = [answer for answer in answers if answer[0]]
    wrong = [answer[1] for answer in answers if not answer[0]]
    return Tally(len(right), len(answers), [one[2] for one in answers], [one[3] for one in answers], wrong)


def ask_slow(lab: Lab) -> tuple[dict[str, Any], float]:
    """Ask which rank is late, after some more steps."""
    time.sleep(3.0)
    return diagnose(lab, "--slow")


def run_partition(lab: Lab, job: Path, rounds: int) -> Tally:
    """Cut the training network of one node so often; who is lost must be known from the end of the run."""
    answers: list[tuple[bool, str, float, float]] = []
    for _ in range(rounds):
        launched = cctl(lab, "launch", "-d", "--ignore-checks", "--set", "env.CASE=healthy", str(job))
        if launched.returncode:
            raise SystemExit(launched.stderr)
        try:
            wait_for_answer(lab, "CC-HANG-009")
            began = time.monotonic()
            labs.break_node(lab, "gpu02", "nic-down")
            ended = cctl(lab, "attach").stderr
            seconds = time.monotonic() - began
            lines = [line for line in ended.splitlines() if "gpu02" in line and "lost" in line]
            answers.append((bool(lines), (lines or ended.splitlines() or [""])[-1], 0.0, seconds))
        finally:
            labs.heal_node(lab, "gpu02")
            cctl(lab, "stop", "-y")
    right, wrong = [one for one in answers if one[0]], [one[1] for one in answers if not one[0]]
    return Tally(len(right), len(answers), [one[2] for one in answers], [one[3] for one in answers], wrong)


def run_busy(lab: Lab, job: Path, pairs: int) -> list[tuple[float, float]]:
    """Return the steps per second of each pair: without and with what `diagnose` needs in the ranks."""
    seen = []
    for number in range(pairs):
        order = (False, True) if number % 2 == 0 else (True, False)
        rates = {watched: steps_per_second(lab, job, watched) for watched in order}
        seen.append((rates[False], rates[True]))
    return seen


def steps_per_second(lab: Lab, job: Path, watched: bool) -> float:
    """Run the ranks that only communicate to their end."""
    words = ("--set", "env.CASE=busy", "--set", f"diagnose={str(watched).lower()}")
    done = cctl(lab, "launch", "--ignore-checks", *words, str(job))
    rates = re.findall(r"([0-9.]+) steps per second", done.stdout + done.stderr)
    if done.returncode or not rates:
        raise SystemExit(done.stdout + done.stderr)
    return statistics.mean(float(rate) for rate in rates)


def render_busy(pairs: Sequence[tuple[float, float]]) -> str:
    """Write the ratio of each pair and their median."""
    ratios = [watched / bare for bare, watched in pairs]
    rates = [statistics.median(one) for one in zip(*pairs, strict=True)]
    listed = " ".join(f"{ratio:.3f}" for ratio in ratios)
    return (
        f"busy       {rates[0]:.0f} steps/s without, {rates[1]:.0f} with; ratios {listed}; "
        f"median {statistics.median(ratios):.3f}"
    )


def wait_for_answer(lab: Lab, code: str) -> tuple[dict[str, Any], float]:
    """Ask until the answer has the code, or time is up: a hang shows once a wait is longer than usual."""
    deadline = time.monotonic() + ASK_LIMIT
    while True:
        document, seconds = diagnose(lab)
        if document.get("code") == code or time.monotonic() > deadline:
            return document, seconds
        time.sleep(0.5)


def judge_answer(
    document: Mapping[str, Any], seconds: float, expected: Expected | None
) -> tuple[bool, str, float, float]:
    """Return whether an answer is right; the sentence, and both times."""
    sentence = str(document.get("sentence"))
    took = max((float(node["took"] or 0.0) for node in document.get("nodes", ())), default=0.0)
    if expected is None:
        return document.get("hangs") is False, sentence, took, seconds
    named = (document.get("code"), tuple(document.get("suspects", ())))
    return named == (expected.code, expected.suspects) and expected.word in sentence, sentence, took, seconds


def diagnose(lab: Lab, *options: str) -> tuple[dict[str, Any], float]:
    """Run the command once."""
    began = time.monotonic()
    done = cctl(lab, "diagnose", "--json", *options)
    seconds = time.monotonic() - began
    return (json.loads(done.stdout) if done.stdout.strip() else {}), seconds


def cctl(lab: Lab, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `clusterctl`."""
    env = {**os.environ, "CLUSTERCTL_INVENTORY": str(lab.inventory), "CLUSTERCTL_LANG": "en"}
    return subprocess.run(
        [*COMMAND, *words], env=env, capture_output=True, text=True, timeout=600, check=False
    )


def render(case: str, tally: Tally) -> str:
    """Write a row; below it the first wrong answers."""
    answered, whole = (statistics.median(times) if times else 0.0 for times in (tally.answered, tally.whole))
    row = f"{case:<10} {tally.right:>3} of {tally.asked:<4} {answered:>8.2f} s  {whole:>6.2f} s"
    return "\n".join([row, *(f"    wrong: {sentence}" for sentence in tally.wrong[:3])])


if __name__ == "__main__":
    main()
