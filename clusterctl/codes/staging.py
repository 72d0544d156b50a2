"""Models and data that nodes get before a run: CC-STAGE."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Same

ENTRIES: Mapping[str, Entry] = {
    "CC-STAGE-010": Entry(
        "error",
        "no node reaches the server that a source of `stage` is on",
        "One node downloads it, and the others take it from that node.",
        do="Name a mirror or a proxy in `env:` of the job, or download it on this machine and stage the directory",
        cases={
            "hf": Case(
                "{source}: no node reaches the server ({problem})",
                "name a mirror in `env: {HF_ENDPOINT: https://...}`, or on this machine: "
                "`hf download {path} --local-dir DIR` and `from: DIR`",
            ),
            "ms": Case(
                "{source}: no node reaches the server ({problem})",
                "on this machine: `modelscope download --model {path} --local_dir DIR` and `from: DIR`",
            ),
            "url": Case(
                "{source}: no node reaches the server ({problem})",
                "name a proxy in `env: {https_proxy: http://...}`, or download it on this machine and write `from: FILE`",
            ),
        },
    ),
    "CC-STAGE-011": Entry(
        "error",
        "a hub or a web server refuses access to a source of `stage`",
        "The model is private or gated, or the token is not valid.",
        do="Accept the terms on the page of the model, and set `HF_TOKEN` (or `MODELSCOPE_API_TOKEN`) where you start "
        "clusterctl, or as one of the job's `secrets`",
        cases={
            "reported": Case(
                Same("{message}"),
                "accept the terms on the page of the model, and set HF_TOKEN or MODELSCOPE_API_TOKEN on this machine",
            )
        },
    ),
    "CC-STAGE-012": Entry(
        "error",
        "a source of `stage` is not on the server",
        "A repository, a revision or a file does not exist; a hub reports the same of one that the token has no access to.",
        do="Check the name and the revision on the page of the model; set `HF_TOKEN` if it is private",
        cases={
            "reported": Case(
                Same("{message}"),
                "check the name and the revision; if it is private, set HF_TOKEN on this machine",
            )
        },
    ),
    "CC-STAGE-013": Entry(
        "error",
        "a hub limits the rate of requests for longer than 15 minutes",
        "Requests without a token have a smaller share.",
        do="Try again later; with `HF_TOKEN` the limit is higher",
        cases={
            "reported": Case(
                Same("{message}"), "try again later: what has come is kept; with HF_TOKEN the limit is higher"
            )
        },
    ),
    "CC-STAGE-014": Entry(
        "error",
        "a server that a source of `stage` is on does not answer as it should",
        "It cannot be reached any more, has no valid certificate, or fails.",
        do="Try again; what has come is kept. Name a mirror or a proxy in `env:` of the job",
        cases={
            "reported": Case(
                Same("{message}"),
                "try again: what has come is kept; a mirror or a proxy goes into `env:` of the job (HF_ENDPOINT, https_proxy)",
            )
        },
    ),
    "CC-STAGE-015": Entry(
        "error",
        "what a server sends for a source of `stage` is not what it should be",
        "A wrong hash, a wrong size, or a name that leads out of the directory: nothing of it has got its name.",
        do="Try again; if it is the same again, do not use this mirror, or compare `sha256` with its origin",
        cases={
            "reported": Case(
                Same("{message}"),
                "try again; if it is the same again, do not use this mirror, or correct `sha256`",
            ),
            "node": Case(
                "it lists for {source} what that cannot have: {problem}", "check the node: `clusterctl check`"
            ),
        },
    ),
    "CC-STAGE-020": Entry(
        "warning",
        "what `stage` has copied to a node is not as it was",
        "The run would not find its model or data. `launch` copies what is missing before the run.",
        "Files are compared by name, size and target of links, with `stage --verify` by their hashes.",
        do="Run `clusterctl stage JOB.yaml`, or `launch`, which does the same",
        cases={"": Case(fix="`clusterctl stage JOB.yaml` copies what is missing or was changed")},
    ),
    "CC-STAGE-021": Entry(
        "warning",
        "nodes have different revisions or contents of what `stage` copies",
        "Ranks would train with different models or data. `launch` copies the same to all before the run.",
        "Each node keeps a record of what was copied, from where, of which revision, and with which hash.",
        do="Run `clusterctl stage JOB.yaml`, or `launch`; name a commit in `from` so that the revision cannot change",
        cases={
            "": Case(
                fix="`clusterctl stage JOB.yaml` copies the same to all; a commit in `from` keeps the revision"
            )
        },
    ),
    "CC-STAGE-022": Entry(
        "info",
        "a node has the same staged content in several places",
        "Each copy takes its space on the disk.",
        "Their records have the same hash, so the files are the same: two caches, or two values of `to`.",
        do="Use one `to` in all jobs; `clusterctl clean --staged --dry-run` lists what is there",
        cases={
            "": Case(
                fix="use one `to` in all jobs; `clusterctl clean --staged --dry-run` lists what is there"
            )
        },
    ),
}
