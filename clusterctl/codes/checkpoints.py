"""Checkpoints that the nodes of a run keep for each other: CC-CKPT."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Same

_REPORTED = Same("{message}")

ENTRIES: Mapping[str, Entry] = {
    "CC-CKPT-010": Entry(
        "warning",
        "a node has no room for another node's checkpoint",
        "The checkpoint has fewer copies than the job asks for. The run goes on.",
        do="Free space in the work directory of the node, or set `copies` or `keep` of `checkpoints` lower",
        cases={"reported": Case(_REPORTED, "free space there, or set `keep` of `checkpoints` lower")},
    ),
    "CC-CKPT-011": Entry(
        "warning",
        "a checkpoint is not copied to other nodes",
        "A restart goes on from the one before it. The run goes on.",
        do="If the script removes checkpoints, let it keep one more",
        cases={"reported": Case(_REPORTED, "if the script removes checkpoints, let it keep one more")},
    ),
    "CC-CKPT-012": Entry(
        "warning",
        "another run writes its checkpoints to the same directory",
        "Files of two runs cannot be distinguished, so none are copied until that run has ended.",
        do="Write `${run_id}` into `path` of `checkpoints`, and have the script write there",
        cases={"reported": Case(_REPORTED, "write `${run_id}` into `path` of `checkpoints`")},
    ),
    "CC-CKPT-013": Entry(
        "error",
        "a checkpoint cannot be restored on a node",
        "Its files are gone or were changed on all nodes that had them.",
        do="Start again: the run goes on from an earlier checkpoint; `copies: 3` lets two nodes fail at once",
        cases={"reported": Case(_REPORTED, "`copies: 3` lets two nodes fail at once")},
    ),
    "CC-CKPT-014": Entry(
        "warning",
        "the process that keeps checkpoints on a node has failed",
        "Later checkpoints may have fewer copies. The run goes on.",
        do="Please report it, with agent.log of the run on this node",
        cases={"reported": Case(_REPORTED, "please report it, with agent.log of the run on this node")},
    ),
}
