"""The script for sbatch: its options from the job, its values as plain shell, and what it leaves out."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from exporting import INVENTORY, make_export, option_lines
from waiting import HANG

from clusterctl.plans.export.bash import render_bash
from clusterctl.plans.export.slurm import render_slurm
from clusterctl.translation import Language, use_language

BASIC = ["--job-name=j", "--nodes=3", "--ntasks-per-node=1"]


@pytest.mark.parametrize(
    ("job", "pattern", "options"),
    [
        ("nproc_per_node: 2", None, [*BASIC, "--gpus-per-node=2", "--cpus-per-task=2"]),
        ("nproc_per_node: 2, backend: gloo", None, [*BASIC, "--cpus-per-task=2"]),
        ("nproc_per_node: cpu, backend: gloo", None, [*BASIC, "--exclusive", "--mem=0"]),
        ("gpus: [2, 3]", None, [*BASIC, "--gpus-per-node=2", "--cpus-per-task=2"]),
        ("nodes: 16", "none", [BASIC[0], "--nodes=16", BASIC[2], "--exclusive", "--mem=0"]),
        (
            "time_limit: 90m",
            "gpu[01-02]",
            [
                *(BASIC[0], "--nodes=2", BASIC[2], "--gpus-per-node=4", "--exclusive", "--mem=0"),
                *("--time=01:30:00", "--nodelist=gpu[01-02]"),
            ],
        ),
    ],
)
def test_the_options_of_sbatch_come_from_the_job(job: str, pattern: str | None, options: list[str]) -> None:
    """Whole nodes for a job that takes all of a node, else what its workers need; names only where they were chosen."""
    inventory = None if pattern == "none" else INVENTORY
    export = make_export(job, "slurm", inventory, pattern=None if pattern == "none" else pattern)

    shown = option_lines(render_slurm(export).text)

    assert shown[: len(options)] == options
    assert shown[len(options) :] == ["--no-requeue", "--open-mode=append", "--output=%x-%j.out"]


def test_what_slurm_does_not_do_is_a_comment_and_a_note() -> None:
    """Nothing of the job file is dropped without a word."""
    job = (
        "restart: {max: 2, spares: 1}, start: fork, grace: 2m, env: {CUDA_VISIBLE_DEVICES: '1'}, "
        "on_end: {command: [x]}, notify: [{to: slack, url_from: U}], log_limit: 1GB"
    )
    script = render_slurm(make_export(job, "slurm", INVENTORY))

    topics = [note.partition(":")[0] for note in script.notes]
    assert topics == [
        *("restart", "restart.spares", "env.CUDA_VISIBLE_DEVICES"),
        "the nodes have different numbers of GPUs (gpu[01-02]",
        *("grace", "start", "log_limit", "on_end", "notify"),
    ]
    comments = " ".join(
        line.removeprefix("#").strip() for line in script.text.splitlines() if line.startswith("#")
    )
    assert all(note in comments for note in script.notes)
    assert "--requeue" in option_lines(script.text)
    assert "CUDA_VISIBLE_DEVICES=" not in script.text


# Slurm's commands for a job on one node, and an interpreter that shows what it gets.
COMMANDS = {
    "scontrol": "#!/bin/sh\necho one\n",
    "srun": '#!/bin/sh\nwhile case $1 in --*) true ;; *) false ;; esac; do shift; done\nexec "$@"\n',
    "python": f"#!{sys.executable}\nimport json, os, sys\n"
    "print(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]))\n",
}


@pytest.mark.process
def test_values_reach_the_program_as_they_were_written(tmp_path: Path) -> None:
    """Quotes, dollars and blanks are the user's; holes are filled; secrets come from the environment alone."""
    for name, text in COMMANDS.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    args = json.dumps(["it's $HOME `x`", "${node_rank}/${nnodes}/${world_size}", "two words"])
    job = (
        f"nproc_per_node: 2, secrets: [TOKEN], args: {args}, env: {{A: \"'$B' ${{run_id}}\"}}, "
        f"python: '{tmp_path}/python', nodes: 1"
    )
    script = tmp_path / "job.sbatch"
    script.write_text(render_slurm(make_export(job, "slurm", None)).text)
    slurm = {"SUBMIT_DIR": str(tmp_path), "JOB_ID": "7", "JOB_NODELIST": "one", "NODEID": "0"}
    slurm |= {"STEP_NUM_NODES": "1", "CPUS_PER_TASK": "2"}
    env = {f"SLURM_{key}": value for key, value in slurm.items()}
    env |= {"SLURMD_NODENAME": "one", "PATH": f"{tmp_path}:{os.environ['PATH']}", "RANK": "9", "PET_X": "1"}

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        words = ["bash", str(script), "more", "a b"]
        return subprocess.run(
            words, env={**env, **more}, capture_output=True, text=True, timeout=HANG, check=False
        )

    assert "TOKEN: export it before sbatch" in run().stderr
    done = run(TOKEN="t")
    assert done.returncode == 0, done.stderr
    argv, folder, seen = json.loads(done.stdout)
    assert argv[argv.index("--") :] == [
        *("--", "t.py", "it's $$HOME `x`", "0/1/2", "two words", "more", "a b")
    ]
    assert argv[:2] == ["-m", "torch.distributed.run"]
    assert argv[argv.index("--master-addr") + 1 : argv.index("--max-restarts")] == [
        *("127.0.0.1", "--master-port", "20007")
    ]
    assert (seen["A"], seen["TOKEN"], seen["SRUN_CPUS_PER_TASK"]) == ("'$B' j-7", "t", "2")
    assert (seen["NCCL_SOCKET_IFNAME"], seen["GLOO_IFACE"], folder) == ("=lo", "lo", str(tmp_path))
    assert not {"RANK", "PET_X", "code", "master_addr"} & seen.keys()


JOBS = {
    "plain": "",
    "all": "before: {run: [a, b]}, after: {run: c}, secrets: [A, B], time_limit: 1h, activate: 'source x # y', "
    "args: [\"${local_rank} it's\"], restart: {max: 1}, sync: {exclude: [data/, '!keep', '/x/**']}",
    "one process": "launcher: python, args: [--rank, '${node_rank}', '${nproc_per_node}']",
    "module": "module: pkg.train, nproc_per_node: cpu, backend: gloo",
}


@pytest.mark.process
@pytest.mark.parametrize("job", JOBS.values(), ids=list(JOBS))
def test_bash_and_shellcheck_accept_the_scripts(job: str, tmp_path: Path) -> None:
    """Both scripts, with the node's part of the one for bash; shellcheck reads the longest, where it is installed."""
    bash = render_bash(make_export(job, "bash", INVENTORY)).text
    _, node_part, _ = re.split(r"(?<=<<')END OF NODE SCRIPT \w+'\n|\nEND OF NODE SCRIPT \w+\n", bash)
    texts = {
        "job.sbatch": render_slurm(make_export(job, "slurm", INVENTORY)).text,
        "job.sh": bash,
        "node.sh": "#!/bin/bash\n" + node_part,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    checks = [["bash", "-n", name] for name in texts]
    if shutil.which("shellcheck") and "before" in job:
        checks.append(["shellcheck", "--severity=warning", "--exclude=SC2016,SC1090,SC2154,SC2034", *texts])
    for words in checks:
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=HANG, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("target", ["slurm", "bash"])
def test_only_comments_are_in_the_users_language(target: Literal["slurm", "bash"]) -> None:
    """What runs is the same in each language."""
    programs = {}
    languages: tuple[Language, ...] = ("zh", "en")
    for language in languages:
        use_language(language)
        export = make_export("nproc_per_node: 2, secrets: [TOKEN], grace: 2s", target, INVENTORY)
        text = (render_slurm if target == "slurm" else render_bash)(export).text
        assert ("# 通过 SSH" in text or "# Slurm 上的作业" in text) == (language == "zh")
        programs[language] = [
            line.partition("  # ")[0] for line in text.splitlines() if not line.startswith("# ")
        ]
    assert [line for line in programs["zh"] if not line.startswith("#  ")] == [
        line for line in programs["en"] if not line.startswith("#  ")
    ]
