"""Where everything is in a node's work directory; no file name of a run is spelled elsewhere.

<workdir>/
  id                     random; nodes that share a home read the same
  bin/<sha256>/          payload.zip: the code that runs there
  store/                 contents of files by their SHA-256
  envs/                  see node/state/environments.py
  outputs/<job>/         outlives runs and cleaning
  stage/                 what jobs stage
  trash/                 what is being removed
  staged/, mirror/       see node/sync/
  beacons/               by which `pull` finds nodes that share a home
  runs/<run>/0-.slurm/   what a run on a Slurm cluster has, see node/slurm/job_files.py
  warm/                  node/fork/warm_client.py
  runs/<run>/<slot>-<node>/
    spec.json            what the agent carries out
    state.json           see messages/files.py
    events.jsonl         the journal
    gang.json            what is known of the whole run's end
    stop.json            what `stop` asked for
    agent.log setup.log after.log
    code/ manifest       the run's copy of the code, and what was sent
    setup/               files that the steps of `setup` read
    diagnose/<k>/        see node/diagnose/rank.py
    samples/             see node/history/ring.py
    ballast              room for the last words on a full disk
    attempt-<k>/         before.log, torchrun.log, and of each worker the following three, where torchrun puts them
      .../<rank>/        stdout.log, stderr.log, error.json
"""

from __future__ import annotations

from posixpath import basename, dirname, join

PAYLOAD = "payload.zip"
STDOUT_LOG, STDERR_LOG, ERROR_FILE = "stdout.log", "stderr.log", "error.json"
ATTEMPT = "attempt-"
_STATE, _EVENTS = "state.json", "events.jsonl"
_AGENT_LOG, _SETUP_LOG = "agent.log", "setup.log"
_PULLED = (_STATE, _EVENTS, _AGENT_LOG, _SETUP_LOG)


class RunPaths:
    """The files of one run on one node; their paths begin with `rundir`."""

    def __init__(self, rundir: str) -> None:
        self.rundir = rundir
        self.spec = join(rundir, "spec.json")
        self.state = join(rundir, _STATE)
        self.events = join(rundir, _EVENTS)
        self.gang_record = join(rundir, "gang.json")
        self.stop_request = join(rundir, "stop.json")
        self.agent_log = join(rundir, _AGENT_LOG)
        self.setup_log = join(rundir, _SETUP_LOG)
        self.code = join(rundir, "code")
        self.manifest = join(rundir, "manifest")
        self.setup_files = join(rundir, "setup")
        self.disk_reserve = join(rundir, "ballast")
        self.samples = join(rundir, "samples")

    @property
    def run_id(self) -> str:
        """Name the run that the directory is for."""
        return basename(dirname(self.rundir))

    @property
    def workdir(self) -> str:
        """Return the work directory that the run is in."""
        return dirname(dirname(dirname(self.rundir)))

    @property
    def node(self) -> str:
        """Name the node that the directory is for."""
        return basename(self.rundir).partition("-")[2]

    def attempt(self, number: int) -> str:
        """Return the directory of an attempt."""
        return join(self.rundir, attempt_folder(number))

    def diagnosis(self, number: int) -> str:
        """Return the directory through which the ranks of an attempt are asked where they are."""
        return join(self.rundir, "diagnose", str(number))


class WorkdirPaths:
    """What a work directory holds."""

    def __init__(self, workdir: str) -> None:
        self.id = join(workdir, "id")
        self.payloads = join(workdir, "bin")
        self.store = join(workdir, "store")
        self.environments = join(workdir, "envs")
        self.outputs = join(workdir, "outputs")
        self.stage = join(workdir, "stage")
        self.trash = join(workdir, "trash")
        self.shared_home_probes = join(workdir, "beacons")
        self.runs = join(workdir, "runs")

    def payload(self, digest: str) -> str:
        """Return where one version of the payload is."""
        return join(self.payloads, digest, PAYLOAD)

    def run(self, run_id: str, *part: str) -> str:
        """Return the directory of a run, or of one node's part of it."""
        return join(self.runs, run_id, *part)


def part_name(slot: int, node: str) -> str:
    """Name the directory of a node's part of a run: nodes that share a home never mix theirs."""
    return f"{slot}-{node}"


def short_id(run_id: str) -> str:
    """Return the hex digits at the end of a run id, by which a person may name the run."""
    return run_id.rpartition("-")[2]


def is_meant(run_id: str, text: str) -> bool:
    """Return whether a text names a run: the beginning of its id, or its short id."""
    return run_id.startswith(text) or short_id(run_id) == text


def attempt_folder(number: int) -> str:
    """Name the directory of an attempt in a run's."""
    return f"{ATTEMPT}{number}"


def early_logs(attempt: int) -> tuple[str, str]:
    """Name the logs of what comes before the workers, relative to the run's directory."""
    return _SETUP_LOG, before_log(attempt)


def before_log(attempt: int) -> str:
    """Name the log of the job's `before`."""
    return join(attempt_folder(attempt), "before.log")


def torchrun_log(attempt: int) -> str:
    """Name the log of torchrun itself."""
    return join(attempt_folder(attempt), "torchrun.log")


def is_pulled_log(name: str) -> bool:
    """Return whether an entry of a run's directory is a log that `pull` downloads, or holds such logs."""
    return name in _PULLED or name.startswith(ATTEMPT)
