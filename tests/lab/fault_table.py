"""The faults that a run must stand: what breaks, how it is made, what must be seen, and by when. Data only.

Tests strike each of them once (`tests`), `tests/bench/faults.py` measures those with `within`, and
tools/docs/generate.py makes the table of docs/inside/faults.md of them. In texts `{node}` is the node that is struck.
"""

from __future__ import annotations

from dataclasses import dataclass

# seconds until all other nodes are stopped
DEATH = 2.0
GONE = 12.0  # its node does not answer either
SILENT = 25.0
MATRIX = "tests/lab/test_fault_matrix.py::test_a_fault"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault; `within` None: the run causes it itself. `place` is the struck node, `left` what may remain."""

    name: str
    breaks: str
    how: str
    within: float | None
    says: tuple[str, ...]
    exit: int
    place: int = 1
    left: str = "nothing"
    tests: tuple[str, ...] = (MATRIX,)
    note: str = ""

    @property
    def is_noticed_late(self) -> bool:
        """Return whether only silence reports it: no process ends, and no connection."""
        return self.within in (GONE, SILENT)


FAULTS = (
    Fault(
        name="worker-raises",
        breaks="a worker raises an exception",
        how="`raise ValueError` in its script",
        within=DEATH,
        says=("rank 1 on {node}: ValueError: failed on purpose",),
        exit=1,
    ),
    Fault(
        name="worker-killed",
        breaks="a worker is killed",
        how="`kill -9` of the worker",
        within=DEATH,
        says=("rank 1 on {node}: killed by SIGKILL", "CC-JOB-041"),
        exit=1,
    ),
    Fault(
        name="worker-segfault",
        breaks="a worker crashes",
        how="it reads address 0",
        within=DEATH,
        says=("rank 1 on {node}: killed by SIGSEGV", "CC-JOB-042"),
        exit=1,
    ),
    Fault(
        name="worker-stopped",
        breaks="a worker is halted",
        how="`kill -STOP` of the worker, later `kill -CONT`",
        within=None,
        says=("{node}: rank 1 is stopped (SIGSTOP); the others will wait for it",),
        exit=0,
        tests=(MATRIX, "tests/lab/test_causes.py::test_a_rank_that_sigstop_holds_is_never_forgotten"),
        note="Reported, also by `status`; it may be a debugger. If the others give up waiting, it is the cause.",
    ),
    Fault(
        name="torchrun-killed",
        breaks="torchrun is killed",
        how="`kill -9` of torchrun on one node",
        within=DEATH,
        says=("{node}: torchrun was killed by SIGKILL",),
        exit=1,
    ),
    Fault(
        name="torchrun-stopped",
        breaks="torchrun is halted",
        how="`kill -STOP` of torchrun on one node, later `kill -CONT`",
        within=None,
        says=("{node}: torchrun is halted (SIGSTOP, pid ", "-- kill -CONT "),
        exit=0,
        tests=(MATRIX, "tests/lab/test_halted_lab.py::test_a_halted_torchrun_is_named_until_it_continues"),
        note="Reported, also by `status` and `diagnose`, with the command that continues it. Until then the run does "
        "not end, even after all ranks have; after the `stall` time it counts as stalled.",
    ),
    Fault(
        name="agent-killed",
        breaks="an agent is killed",
        how="`kill -9` of the agent on one node",
        within=DEATH,
        says=("{node}: the agent was killed by SIGKILL",),
        exit=1,
    ),
    Fault(
        name="hub-killed",
        breaks="node 0's agent is killed",
        how="`kill -9` of the agent on node 0, the gang's hub",
        within=DEATH,
        says=("{node}: the agent was killed by SIGKILL",),
        exit=1,
        place=0,
    ),
    Fault(
        name="guardian-killed",
        breaks="a guardian is killed",
        how="`kill -9` of the guardian on one node",
        within=DEATH,
        says=("{node}: the guardian was killed",),
        exit=1,
    ),
    Fault(
        name="agent-stopped",
        breaks="an agent is halted",
        how="`kill -STOP` of the agent on one node",
        within=SILENT,
        says=("{node}: the agent is halted (SIGSTOP, pid ", "silent for 20 s"),
        exit=1,
        tests=(MATRIX, "tests/node/gang/test_gang.py::test_a_silent_node_is_lost"),
        note="The node answers connections, so its agent may only be slow: it has the whole 20 s.",
    ),
    Fault(
        name="guardian-stopped",
        breaks="a guardian is halted",
        how="`kill -STOP` of the guardian on one node",
        within=None,
        says=("{node}: the guardian is halted (SIGSTOP, pid ", "SUCCEEDED after"),
        exit=0,
        tests=(MATRIX, "tests/node/supervise/test_kill.py::test_stop_of_a_frozen_guardian"),
        note="Reported. The agent does all the work; `stop` asks it directly.",
    ),
    Fault(
        name="power-off-node-0",
        breaks="node 0 loses power",
        how="its namespaces are killed at once, no packet leaves it any more",
        within=GONE,
        says=("{node}: the node is lost: ", "its node does not answer", "LOST after"),
        exit=1,
        place=0,
    ),
    Fault(
        name="power-off",
        breaks="another node loses power",
        how="the same on node 1",
        within=GONE,
        says=("{node}: the node is lost: ", "its node does not answer", "LOST after"),
        exit=1,
    ),
    Fault(
        name="nic-5s",
        breaks="a cable is out for 5 s",
        how="the training NIC of one node down, and up after 5 s",
        within=None,
        says=("SUCCEEDED after",),
        exit=0,
        note="TCP retransmits what was lost. A collective that waits longer than its own timeout still fails.",
    ),
    Fault(
        name="nic-down",
        breaks="a cable is out for good",
        how="the training NIC of one node down; SSH still reaches it",
        within=GONE,
        says=("{node}: the node is lost: ", "its node does not answer"),
        exit=1,
        note="Both sides notice: the cut node ends its own part, too.",
    ),
    Fault(
        name="sshd-killed",
        breaks="sshd dies",
        how="`kill -9` of a node's listening sshd",
        within=None,
        says=("SUCCEEDED after",),
        exit=0,
        note="No part of a run lives in a session of sshd.",
    ),
    Fault(
        name="launcher-killed",
        breaks="the launching command dies",
        how="`kill -9` of `clusterctl launch`",
        within=None,
        says=("SUCCEEDED after",),
        exit=0,
        note="The screen and the exit code are those of `attach` afterwards.",
    ),
    Fault(
        name="disk-full",
        breaks="a disk fills up",
        how="the script saves to a full file system",
        within=DEATH,
        says=("rank 1 on {node}: OSError: [Errno 28] No space left", "CC-JOB-021"),
        exit=1,
    ),
    Fault(
        name="workdir-full",
        breaks="our own disk fills up",
        how="the same where the work directory is, so that neither logs nor states can be written",
        within=DEATH,
        says=("rank 1 on {node}: ", "CC-JOB-021"),
        exit=1,
        tests=(MATRIX, "tests/lab/test_faults.py::test_a_full_disk_is_a_clear_error_and_starts_nothing"),
        note="Each run reserves disk space for its last error messages; the rank's own output may be lost. A disk "
        "that is full before the start is [`CC-DISK-001`](../en/reference/codes.md#cc-disk-001), and nothing starts.",
    ),
    Fault(
        name="clock-off",
        breaks="a clock is 60 s off",
        how="every Python on one node lives in the next minute; its rank fails, and then rank 0",
        within=DEATH,
        says=("CC-TIME-001", "rank 1 on {node}: ValueError: failed on purpose"),
        exit=1,
        note="The nodes exchange their times; the order of events never compares two clocks.",
    ),
    Fault(
        name="stale-store",
        breaks="an old job's store has the port",
        how="a `TCPStore` listens on the first of the inventory's `ports`",
        within=None,
        says=("SUCCEEDED after",),
        exit=0,
        place=0,
        note="Another port is used, and a store is only accepted if the run's own process owns it.",
    ),
    Fault(
        name="port-stolen",
        breaks="the master port is stolen",
        how="another program listens on it after node 0 has chosen it and before torchrun does",
        within=None,
        says=("SUCCEEDED after",),
        exit=0,
        place=0,
        tests=(MATRIX, "tests/node/supervise/test_run.py::test_another_port_is_taken_when_somebody_has_ours"),
        note="torchrun on node 0 is started again, before any other node has the port.",
    ),
    Fault(
        name="ignores-term",
        breaks="workers ignore SIGTERM",
        how="`clusterctl stop --grace 1`; their children left the session and the environment, too",
        within=1.0 + DEATH,
        says=("STOPPED after", "stopped by"),
        exit=1,
        place=0,
        tests=(MATRIX, "tests/node/supervise/test_kill.py::test_stop_waits_for_the_grace_and_then_kills"),
        note="So do all workers in this table: with a `setsid` child each, which ignores SIGTERM and has no tag.",
    ),
    Fault(
        name="child-left",
        breaks="workers end and leave a child",
        how="the child has left the session with `setsid`, has no tag and ignores SIGTERM",
        within=None,
        says=("SUCCEEDED after",),
        exit=0,
        tests=(MATRIX, "tests/node/supervise/test_kill.py::test_nothing_survives"),
        note="It is ended with the run, however the run ends.",
    ),
)

KEPT = "tests/node/sync/checkpoints/test_keepers_and_ledger.py::"
KEEPERS = "tests/node/sync/checkpoints/test_keeper_faults.py::"
FOUND = "tests/node/sync/checkpoints/test_checkpoints_kept.py::"
LEDGER = "tests/node/gang/test_generations.py::"
RESUMED = "tests/node/gang/test_resume.py::"
STARTS = "tests/node/lifecycle/test_transitions_resume.py::"
AGENT = "tests/node/supervise/test_keeper.py::"


@dataclass(frozen=True, kw_only=True)
class CheckpointFault:
    """A fault while the nodes keep checkpoints for each other, and what the run does; it never ends by it."""

    breaks: str
    follows: str
    tests: tuple[str, ...]


CHECKPOINT_FAULTS = (
    CheckpointFault(
        breaks="a node loses power",
        follows="a spare, or a node less, goes on from its files on the neighbour",
        tests=(
            "tests/lab/test_resume_lab.py::test_a_node_has_no_power_and_a_spare_goes_on_from_its_checkpoint",
            "tests/lab/test_smaller_lab.py::test_fewer_nodes_have_the_files_of_all",
        ),
    ),
    CheckpointFault(
        breaks="a node is lost while it writes",
        follows="the one before is restored",
        tests=(
            f"{KEPT}test_a_node_is_lost_while_it_writes",
            f"{LEDGER}test_what_was_not_sealed_in_its_attempt_never_is",
        ),
    ),
    CheckpointFault(
        breaks="a node is lost while its files are copied",
        follows="what had only begun to come counts for nothing; another node that has them is asked",
        tests=(
            f"{KEPT}test_a_node_is_lost_while_its_part_is_copied",
            f"{KEEPERS}test_a_source_that_dies_in_the_middle",
            f"{KEEPERS}test_a_keeper_that_is_killed_while_it_takes",
        ),
    ),
    CheckpointFault(
        breaks="a node is lost while others restore from it",
        follows="they go on with another one, or the next attempt begins with what is left",
        tests=(
            f"{RESUMED}test_a_node_dies_while_others_fetch_its_files",
            f"{KEEPERS}test_a_hand_over_is_given_up",
        ),
    ),
    CheckpointFault(
        breaks="two neighbours are lost at once",
        follows="reported at once: `step-300` is lost, `step-200` is left",
        tests=(
            f"{KEPT}test_two_neighbours_are_lost_at_once",
            f"{LEDGER}test_two_neighbours_die_at_once_and_it_is_known_at_once_what_is_left",
        ),
    ),
    CheckpointFault(
        breaks="nodes are lost at random moments",
        follows="no safe checkpoint is lost, nothing wrong is chosen",
        tests=(f"{LEDGER}test_no_safe_generation_is_lost_with_one_node_and_nothing_wrong_is_ever_chosen",),
    ),
    CheckpointFault(
        breaks="a byte of a copy is wrong",
        follows="it is taken from another node, or the one before is restored",
        tests=(
            f"{RESUMED}test_a_byte_of_the_only_copy_is_wrong_and_the_one_before_is_taken",
            f"{KEEPERS}test_a_damaged_copy_is_not_reported",
            f"{KEEPERS}test_a_part_comes_from_another_node_if_the_first_is_wrong",
        ),
    ),
    CheckpointFault(
        breaks="a node writes its files later than the others",
        follows="it is waited for; a checkpoint without its files is void",
        tests=(
            f"{FOUND}test_a_node_that_has_no_files_yet_has_time_to_write_them",
            f"{FOUND}test_files_that_come_after_a_node_has_reported_none",
            f"{LEDGER}test_a_seal_without_files_that_came_later_is_void",
        ),
    ),
    CheckpointFault(
        breaks="two runs write to one directory",
        follows="both are warned (CC-CKPT-012), and neither copies anything until the other has ended",
        tests=(f"{KEEPERS}test_two_runs_that_write_to_one_directory",),
    ),
    CheckpointFault(
        breaks="the script removes a checkpoint while it is read",
        follows="it is skipped or not safe, the next one is copied",
        tests=(
            f"{KEPT}test_files_are_removed_while_they_are_copied",
            f"{KEEPERS}test_what_the_script_removes_before_it_is_copied_is_not_copied",
        ),
    ),
    CheckpointFault(
        breaks="the disk of the neighbour is full",
        follows="reported (CC-CKPT-010); another node takes the copy, or the same one later",
        tests=(
            f"{KEEPERS}test_a_full_disk_of_the_neighbour",
            f"{KEPT}test_a_full_disk_has_room_again",
            f"{LEDGER}test_where_the_disk_of_the_neighbour_is_full_the_next_node_takes_the_copy",
        ),
    ),
    CheckpointFault(
        breaks="clocks differ by hours",
        follows="no effect: the number of the seal decides what is newest",
        tests=(f"{KEPT}test_clocks_that_differ_by_hours",),
    ),
    CheckpointFault(
        breaks="a checkpoint is larger than memory",
        follows="no effect: it is read and sent in pieces",
        tests=(f"{KEPT}test_a_checkpoint_that_is_larger_than_memory",),
    ),
    CheckpointFault(
        breaks="a node offers a newer checkpoint that no other has seen",
        follows="it is not restored",
        tests=(
            f"{LEDGER}test_a_seal_that_only_one_other_node_reports_is_not_believed",
            f"{KEEPERS}test_a_hostile_manifest",
        ),
    ),
    CheckpointFault(
        breaks="`stop` or the time limit while files are restored",
        follows="the run ends at once, nothing is left",
        tests=(
            "tests/lab/test_resume_lab.py::test_a_run_that_ends_while_a_checkpoint_is_fetched",
            f"{RESUMED}test_a_stop_while_files_are_fetched_ends_all",
            f"{STARTS}test_a_stop_gives_a_restore_up",
        ),
    ),
    CheckpointFault(
        breaks="the nodes see the same files",
        follows="nothing is copied, and it is reported once",
        tests=(
            f"{RESUMED}test_nodes_that_write_to_one_directory_copy_nothing",
            f"{KEEPERS}test_nodes_that_see_the_same_files",
        ),
    ),
    CheckpointFault(
        breaks="the process that keeps checkpoints dies, or hangs while it restores",
        follows="reported (CC-CKPT-014); the run goes on, and the node that cannot restore is replaced",
        tests=(
            f"{RESUMED}test_a_keeper_that_is_killed_costs_no_run_and_nothing_that_is_safe",
            f"{AGENT}test_a_restore_that_goes_on_no_more_is_ended",
        ),
    ),
)
