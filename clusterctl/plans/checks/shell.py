"""What the way in leaves to be wished, open keys and noisy start files; and files that hide Python's own modules."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from clusterctl.plans.checks.check import Hit, Situation, across, check, on
from clusterctl.plans.checks.remedy import ssh_to
from clusterctl.specs.counted import counted
from clusterctl.specs.nodeset import fold_names

SHOWN_NOISE = 80
# Modules that torch or Python's own start-up import, and whose names people give to their files.
HIDDEN = frozenset(
    (
        *(
            "abc",
            "ast",
            "asyncio",
            "bisect",
            "calendar",
            "code",
            "codecs",
            "collections",
            "copy",
            "csv",
            "ctypes",
        ),
        *(
            "dataclasses",
            "datetime",
            "decimal",
            "email",
            "enum",
            "functools",
            "glob",
            "gzip",
            "hashlib",
            "heapq",
        ),
        *(
            "html",
            "http",
            "inspect",
            "io",
            "json",
            "logging",
            "math",
            "multiprocessing",
            "numbers",
            "operator",
        ),
        *(
            "os",
            "pathlib",
            "pickle",
            "platform",
            "profile",
            "queue",
            "random",
            "re",
            "select",
            "signal",
            "site",
        ),
        *(
            "socket",
            "ssl",
            "stat",
            "statistics",
            "string",
            "struct",
            "subprocess",
            "sys",
            "tarfile",
            "tempfile",
        ),
        *(
            "threading",
            "time",
            "token",
            "tokenize",
            "traceback",
            "types",
            "typing",
            "unittest",
            "uuid",
            "warnings",
        ),
        *("weakref", "xml", "zipfile", "numpy", "torch", "torchvision"),
    )
)


@check(
    "CC-SSH-022",
    "warning",
    "others may read the private key",
    why="Whoever reads it can log in as you; ssh itself refuses such a key.",
)
def open_key(seen: Situation) -> Iterator[Hit]:
    """A private key file on this machine may be read by its group or by everybody.

    `ssh` ignores it (`WARNING: UNPROTECTED PRIVATE KEY FILE!`), so that what works here fails there.
    """
    for path, mode in seen.here.open_keys.items():
        users = [node.name for node in seen.nodes if node.ssh.key == path]
        if users:
            evidence = f"{path} has mode {mode:04o}; used for {fold_names(users)}"
            yield across(users, evidence, f"chmod 600 {shlex.quote(path)}")


@check(
    "CC-SSH-023",
    "info",
    "the login shell prints",
    why="clusterctl skips it, but rsync, scp and sftp break: `is your shell clean?`.",
)
def noisy_shell(seen: Situation) -> Iterator[Hit]:
    """A start file of the login shell (.bashrc, .cshrc, config.fish) writes to standard output without a terminal.

    rsync says `protocol version mismatch -- is your shell clean?`, sftp `Received message too long`. Print only where
    somebody looks: `case $- in *i*) echo hello;; esac`.
    """
    for node, facts in seen.known:
        if facts.noise:
            shown = facts.noise[:SHOWN_NOISE] + ("..." if len(facts.noise) > SHOWN_NOISE else "")
            yield on(node, f"it says: {shown}", ssh_to(node, "true"))


@check(
    "CC-PY-020",
    "warning",
    "a file hides a module of Python or torch",
    why="`import` finds the file beside the script first: ImportError, often deep within torch.",
)
def hidden_module(seen: Situation) -> Iterator[Hit]:
    """Beside the job's script lies a file or a package with the name of a module that torch needs.

    Python looks in the script's own directory first. A random.py or types.py there, or a directory torch with Python
    files, is what everybody imports then: `partially initialized module ... (most likely due to a circular import)`.
    """
    found = [name for name in seen.here.beside_script if name.rstrip("/").removesuffix(".py") in HIDDEN]
    if found and seen.known and seen.job is not None:
        evidence = f"{', '.join(found[:6])} beside {seen.job.script}"
        fix = f"rename {counted(len(found), 'file')}: {' '.join(map(shlex.quote, found[:6]))}"
        yield across([node.name for node, _ in seen.known], evidence, fix)
