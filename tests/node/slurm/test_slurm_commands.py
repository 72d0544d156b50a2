"""What Slurm's programs print, recorded on clusters and as their manuals describe it: no line may stop a verb.

Recorded, with the version where its report names one: GitHub issues 4061 of easybuilders/easybuild-framework, 148 of
jupyterhub/batchspawner, 24 of sampsyo/clusterfutures, 121 of snakemake/snakemake-executor-plugin-slurm (22.05.7), 243
and 201 of mlr-org/batchtools, 2696 of nextflow-io/nextflow, 394 of ReactionMechanismGenerator/ARC, 13 of
neilmunday/slurm-mail, 2 of giovtorres/slurmtools, 1101 of meta-pytorch/torchx (24.11.5), 67 of
ArjunaCluster/ArjunaUsers, 2379 of ufs-community/ufs-weather-model. No page shows the output of our own format:
its lines are put together from these fields, but for the first two, which a 22.05.8 has printed (its own format had no
name). The words of states are those of `job_state_string` in SchedMD/slurm at the newest tag of each version.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from clusterctl.node.runtime.stream import VerbError
from clusterctl.node.slurm import commands
from clusterctl.node.slurm.commands import (
    MAX_NAMED,
    MAX_OUTPUT,
    Finished,
    QueuedJob,
    Settings,
    parse_numbers,
    parse_queue,
    parse_settings,
    parse_submission,
    parse_time,
    query_numbers,
    query_queue,
)
from clusterctl.node.slurm.job_files import JobFiles
from clusterctl.node.slurm.states import SlurmJob, describe_end

EXPECTED = time.mktime((2026, 11, 24, 7, 30, 0, 0, 0, -1))

# `squeue -h -t all -o '%i|%T|%S|%N|%j|%r'`
QUEUE = """\
1|COMPLETED|2026-11-23T10:25:56|gpu[01-03]|digits-20261123T070000-abcd|None
2|RUNNING|2026-11-23T10:27:32|gpu[01-03]|digits-20261123T070000-abcd|None
4711|PENDING|2026-11-24T07:30:00||digits-20261123T070000-abcd|Resources
4712|PENDING|N/A||digits-20261123T070000-abcd|ReqNodeNotAvail, UnavailableNodes:d[001-032],f[001-024]
4713|RUNNING|2026-11-24T07:30:00|gpu[01-03,07],gpu[1-2]-ib[0-1]|digits-20261123T070000-abcd|None
4714|CANCELLED|2026-11-24T07:30:00||digits-20261123T070000-abcd|None
4715|NODE_FAIL|2026-11-24T07:30:00|gpu01|digits-20261123T070000-abcd|None
4716|PENDING|N/A||digits-20261123T070000-abcd|a | b
57266000_0|PENDING|N/A||digits-20261123T070000-abcd|ReqNodeNotAvail, Reserved for maintenance
31180452_[0-467]|PENDING|N/A||digits-20261123T070000-abcd|Priority
31180452_9|COMPLETED|2026-11-24T07:30:00|gpu01|digits-20261123T070000-abcd|None
21+1|RUNNING|2026-11-24T07:30:00|slurm-h100-206-089|digits-20261123T070000-abcd|None
21+0|COMPLETED|2026-11-24T07:30:00|slurm-h100-206-061|digits-20261123T070000-abcd|None
4717_[1-4,6,...%2]|PENDING|N/A||digits-20261123T070000-abcd|JobArrayTaskLimit
4718|?|N/A|gpu01|digits-20261123T070000-abcd|None
4719|EXPEDITING|N/A||digits-20261123T070000-abcd|None
4720|RESV_DEL_HOLD|N/A||digits-20261123T070000-abcd|ReservationDeleted
80634|PENDING|Unknown||digits-20261123T070000-abcd|launch failed requeued held
slurm_load_jobs error: Unable to contact slurm controller (connect failure)
135087666   c5       batch      normal      Dusan.Jovic         COMPLETININVALID     3      run_cpld_debug_pdlib
|||||
-1|RUNNING|N/A|gpu01|digits-20261123T070000-abcd|None
"""


def test_a_queue_is_read() -> None:
    """Each whole line is a job; messages, other tables and damaged lines are passed over."""
    jobs = parse_queue(QUEUE)

    arrays = ["57266000", "31180452", "21", "4717"]
    assert list(jobs) == [
        "1",
        "2",
        "4711",
        "4712",
        "4713",
        "4714",
        "4715",
        "4716",
        *arrays,
        "4718",
        "4719",
        "4720",
        "80634",
    ]
    assert jobs["4711"] == QueuedJob(
        "4711", "PENDING", "Resources", EXPECTED, "", "digits-20261123T070000-abcd"
    )
    assert jobs["4712"].reason == "ReqNodeNotAvail, UnavailableNodes:d[001-032],f[001-024]"
    assert jobs["4716"].reason == "a | b"
    assert [job for job, queued in jobs.items() if queued.is_over] == ["1", "4714", "4715"]
    running = ["1", "2", "4713", "4714", "4715", "21", "4718"]
    assert [job for job, queued in jobs.items() if not queued.is_pending] == running
    assert jobs["4713"].nodes == "gpu[01-03,07],gpu[1-2]-ib[0-1]"


# The same words at the tags slurm-21-08-8-2, 22-05-11-1, 23-02-8-1, 23-11-11-1, 24-05-8-1, 24-11-7-1 and 25-05-8-1;
# 25-11-7-1 and 26-05-3-1 have EXPEDITING too. Of several that apply Slurm prints the first.
WAITS = "REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT RESV_DEL_HOLD PENDING EXPEDITING"
LIVES = "COMPLETING STAGE_OUT CONFIGURING RESIZING STOPPED SIGNALING RUNNING SUSPENDED ?"
OVER = "REVOKED COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE OUT_OF_MEMORY"


@pytest.mark.parametrize(("words", "waits", "over"), [(WAITS, 1, 0), (LIVES, 0, 0), (OVER, 0, 1)])
def test_every_state_of_every_version_is_known(words: str, waits: int, over: int) -> None:
    """A job that waits is followed, one that is over is not; between them something of it may run."""
    for word in words.split():
        job = parse_queue(f"4711|{word}|N/A|gpu01|j|None\n")["4711"]
        assert (job.is_pending, job.is_over) == (waits, over), word


@pytest.mark.parametrize("state", ["?", "RUNNING+", "running", "A" * 500, ""])
def test_a_job_whose_state_cannot_be_read_is_neither_waiting_nor_over(state: str) -> None:
    """It is there: to count it as forgotten would end a run that goes on."""
    job = parse_queue(f"4711|{state}|N/A|gpu01|j|None\n")["4711"]
    assert (job.state, job.is_over, job.is_pending) == ("UNKNOWN", False, False)


def answer(monkeypatch: pytest.MonkeyPatch, *answers: Finished | VerbError) -> list[list[str]]:
    """Let Slurm's programs end like this, one after the other; gives the commands."""
    called: list[list[str]] = []

    def run_program(argv: list[str], _limit: float = 0.0) -> Finished:
        called.append(argv)
        outcome = answers[len(called) - 1]
        if isinstance(outcome, VerbError):
            raise outcome
        return outcome

    monkeypatch.setattr(commands, "run_program", run_program)
    return called


@pytest.mark.parametrize(
    "error",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Socket timed out on send/recv operation",
        "squeue: error: slurm_receive_msg: Socket timed out on send/recv operation,\n"
        "slurm_load_jobs error: Socket timed out on send/recv operation",
    ],
)
def test_a_controller_that_is_away_has_not_forgotten_the_job(
    monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    """Only Slurm itself can report that there is no such job."""
    answer(monkeypatch, Finished(1, "", error))
    assert query_queue(["4711"]) is None
    answer(monkeypatch, Finished(1, "", "slurm_load_jobs error: Invalid job id specified"))
    assert query_queue(["4711"]) == {}
    answer(monkeypatch, VerbError("CC-SLURM-004", "squeue did not end within 20 s"))
    assert query_queue(["4711"]) is None


def test_a_list_that_is_too_long_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was cut off would count as forgotten."""
    answer(monkeypatch, Finished(0, "4711|RUNNING|N/A|gpu01|j|None\n" + "x" * MAX_OUTPUT, ""))
    assert query_queue(["4711", "4712"]) is None


def test_many_jobs_are_many_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command line has a limit; no question is empty, which would ask for the jobs of all."""
    lines = Finished(0, "4711|RUNNING|N/A|gpu01|j|None\n", "")
    called = answer(monkeypatch, lines, Finished(0, "9|PENDING|N/A||j|None\n", ""))
    found = query_queue(str(number) for number in range(MAX_NAMED + 1))
    assert found is not None and list(found) == ["4711", "9"]
    assert [argv[-1].count(",") + 1 for argv in called] == [MAX_NAMED, 1]
    assert query_queue([]) == {} and query_numbers([]) == {} and len(called) == 2


def test_jobs_of_other_accounts_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another account may give a job of its own the name of a run."""
    called = answer(monkeypatch, Finished(0, "", ""), Finished(0, "", ""))
    query_queue(["4711"])
    query_numbers(["j-1"])
    assert [argv[argv.index("-u") + 1] for argv in called] == [str(os.getuid())] * 2


def test_a_number_is_found_by_the_name_of_the_job() -> None:
    """A name may hold what separates the fields."""
    assert parse_numbers("j-1|4711\na|b|12\nj-2|4712_3\n\nslurm error\n") == {"j-1": "4711", "a|b": "12"}


@pytest.mark.parametrize("text", ["", "\n" * 100_000, "|" * 2_000_000, "1|" + "A" * 5_000_000 + "|||"])
def test_damaged_output_holds_no_job(text: str) -> None:
    """However long it is."""
    assert parse_queue(text) == {}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4711\n", "4711"),
        ("4711;cluster2\n", "4711"),  # a federation
        ("sbatch: lua: job is charged to cs-ml\n4711\n", "4711"),
        ("75168975;clustername\n", "75168975"),
        ("sbatch: no partition specified, using default partition m100_all_serial\n7787232\n", "7787232"),
        (
            "Sun Jul  7 03:08:23 2019 [INFO4] [euid=5534,pid=5818] auks_api: auks cred added using default file\n"
            "132826\n",
            "132826",
        ),
        ("", None),
        ("Submitted batch job 3969755 on cluster nautilus\n", None),  # without --parsable
        ("4711 4712\n", None),
        ("9" * 1_000_000, None),
    ],
)
def test_the_number_of_a_job_is_read(text: str, number: str | None) -> None:
    """Sites let sbatch print messages of their own."""
    assert parse_submission(text) == number


@pytest.mark.parametrize(
    "text",
    [
        *("N/A", "Unknown", "", "None", "INVALID", "UNLIMITED", "Partition_Limit", "1-02:03:04", "NOT_SET"),
        *("2026-13-01T00:00:00", "99999-01-01T00:00:00", "9" * 1_000_000, "Tomorr 07:30"),
    ],
)
def test_a_time_that_is_none(text: str) -> None:
    """As Slurm writes it where it does not know."""
    assert parse_time(text) is None


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        # 25.05.5; the others: 23.02.7 as a test of Vantage's agent has it, 20.11.6 of hpcugent/vsc-administration,
        # 25.11.4 of a cluster in containers, and 24.11.5 by `add_key_pair` in src/api/config_info.c
        ("JobRequeue              = 0\nKillWait                = 30 sec\n", Settings(30.0)),
        (
            "CliFilterPlugins        = (null)\nClusterName             = demo-cluster\n"
            "KillOnBadExit           = 0\nKillWait                = 30 sec\nSLURM_VERSION           = 23.02.7\n",
            Settings(30.0, "demo-cluster"),
        ),
        (
            "Configuration data as of 2022-04-27T10:07:02\nClusterName             = mycluster\n",
            Settings(None, "mycluster"),
        ),
        (
            "AccountingStorageType   = accounting_storage/slurmdbd\nClusterName             = machine-learning-group\n"
            "FederationParameters    = (null)\nSlurmctldHost[0]        = node1\n",
            Settings(None, "machine-learning-group"),
        ),
        ("ClusterName             = hpc\r\nKillWait                = 120 sec\n", Settings(120.0, "hpc")),
        ("slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)", Settings()),
        ("MCSParameters           = ClusterName = other\nKillWait = soon\n", Settings()),
    ],
)
def test_the_configuration_is_read(text: str, settings: Settings) -> None:
    """As scontrol shows it."""
    assert parse_settings(text) == settings


def test_settings_of_the_login_shell_hide_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """With SQUEUE_PARTITION squeue leaves out jobs; with SBATCH_WAIT sbatch ends when the job does."""
    for name in ("SQUEUE_PARTITION", "SQUEUE_NAMES", "SLURM_TIME_FORMAT", "SBATCH_WAIT", "SBATCH_ARRAY_INX"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    shown = commands.run_program(["env"]).output
    assert "SLURM_CONF=/etc/slurm.conf" in shown and "=x\n" not in shown


@pytest.mark.parametrize(
    ("over", "reason", "text"),
    [
        ("CANCELLED", "Resources", "Slurm job 8: CANCELLED"),
        ("NODE_FAIL", "NodeDown", "Slurm job 8: NODE_FAIL (NodeDown)"),
    ],
)
def test_why_a_job_waited_is_not_why_it_was_cancelled(
    tmp_path: Path, over: str, reason: str, text: str
) -> None:
    """Slurm keeps the reason of the queue for a job that a user has cancelled there."""
    job = SlurmJob(JobFiles(str(tmp_path)), "8", QueuedJob("8", over, reason), over)
    assert describe_end(job) == text
