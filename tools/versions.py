"""Run clusterctl with each Python and each torch of this machine, and write what was seen into `docs/inside/tested.md`.

    python tools/versions.py pythons [FOLDER ...]   each python3.N below FOLDER (~/.pyenv/versions), on the machine
                                                    where you type and on nodes of a lab
    python tools/versions.py torch PYTHON ...       interpreters with torch and what `./test` needs: forked workers
                                                    compared with new interpreters

The first takes minutes, the second half an hour for each PYTHON. A table has only what the last run has seen.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "inside" / "tested.md"
LAB = "versions"
OLDEST_CLIENT, OLDEST_NODE = (3, 10), (3, 8)
MAX_WAIT = 600  # seconds for one command

SCRIPT = """import os, sys, time
print("hello from Python %d.%d" % sys.version_info[:2], flush=True)
open(os.path.join(sys.argv[1], "result.txt"), "w").close()
time.sleep(float(sys.argv[-1]))
"""
JOB = """name: versions
script: hello.py
args: ["${output_dir}", "0"]
launcher: python
setup: {venv: requirements.txt}
backend: gloo
nproc_per_node: 1
alone: ok
"""
# Column of the table, and its commands; those after a launch are about its run.
COMMANDS: Mapping[str, Sequence[Sequence[str]]] = {
    "check": [("check", "job.yaml")],
    "launch": [("launch", "job.yaml")],
    "look": [("logs",), ("status",), ("ps",), ("top", "--once"), ("report", "--output", "report.html")],
    "files": [("pull",), ("exec", "--", "true"), ("sync", "job.yaml")],
    "stop": [("launch", "-d", "job.yaml", "--", "600"), ("diagnose",), ("stop", "-y")],
    "clean": [("clean", "-y"), ("ps",)],
}
# All that is sent to nodes, in the package that it is in there.
IMPORT_ALL = """import importlib, pkgutil, clusterctl.node as package
names = [module.name for module in pkgutil.walk_packages(package.__path__, "clusterctl.node.")]
print(len([importlib.import_module(name) for name in names]))
"""
# The tests in which a new torch could make a difference; with all variants.
TORCH_TESTS: Mapping[str, Sequence[str]] = {"forked = new interpreter": ("tests/node/fork",)}


def main() -> int:
    """Make the tables that are asked for; returns 1 if anything in them failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("pythons", "torch"))
    parser.add_argument(
        "paths", nargs="*", type=Path, help="folders of interpreters, or interpreters with torch"
    )
    asked = parser.parse_args()
    if asked.what == "pythons":
        table = list(tabulate_pythons(asked.paths or [Path.home() / ".pyenv" / "versions"]))
    else:
        table = list(tabulate_torch(asked.paths))
    write_table(asked.what, table)
    return any("failed" in cell for row in table for cell in row)


def find_pythons(folders: Iterable[Path]) -> dict[tuple[int, int], Path]:
    """Find an interpreter of each version from the oldest for nodes on."""
    found: dict[tuple[int, int], Path] = {}
    for path in (path for folder in folders for path in sorted(folder.glob("**/bin/python3.*"))):
        version = re.fullmatch(r"python3\.(\d+)", path.name)
        if version and (3, int(version[1])) >= OLDEST_NODE:
            found.setdefault((3, int(version[1])), path)
    return dict(sorted(found.items()))


def tabulate_pythons(folders: Iterable[Path]) -> Iterable[list[str]]:
    """Yield a row for each version on the machine where you type, then for each on nodes."""
    found = find_pythons(folders)
    yield ["Python", "where", "starts", *(name_commands(commands) for commands in COMMANDS.values())]
    with tempfile.TemporaryDirectory(prefix="cv-") as text:
        folder = Path(text)
        os.environ.update(XDG_STATE_HOME=str(folder / "state"), CLUSTERCTL_LANG="en")
        ours = [sys.executable, "-m", "clusterctl"]
        run([*ours, "lab", "up", "-n", "2", "--name", LAB, "--backend", "inproc"], ROOT)
        try:
            lab = json.loads(run([*ours, "lab", "status", "--json"], ROOT)[1])["labs"][0]
            inventory = Path(lab["inventory"]).read_text(encoding="utf-8")
            for version, python in found.items():
                if version >= OLDEST_CLIENT:
                    client, starts = install(python, folder / f"client-3.{version[1]}")
                    yield [number(version), "client", starts, *try_commands(client, folder, inventory)]
            sent = link_sent(folder / "sent")
            for version, python in found.items():
                imported = judge_import(run([str(python), "-c", IMPORT_ALL], sent))
                on_nodes = re.sub(r"(?m)^python: .*$", f"python: {python}", inventory)
                yield [number(version), "nodes", imported, *try_commands(ours, folder, on_nodes)]
        finally:
            run([*ours, "lab", "down", "--name", LAB, "-y"], ROOT)


def number(version: tuple[int, int]) -> str:
    """Write a version."""
    return f"{version[0]}.{version[1]}"


def name_commands(commands: Sequence[Sequence[str]]) -> str:
    """Write the heading of a column."""
    return " ".join(f"`{command[0]}`" for command in commands)


def install(python: Path, folder: Path) -> tuple[list[str], str]:
    """Install clusterctl into a new environment; returns its command, and whether `--help` works."""
    run([str(python), "-m", "venv", str(folder)], ROOT)
    code, output = run([str(folder / "bin" / "python"), "-m", "pip", "-q", "install", str(ROOT)], ROOT)
    if code != 0:
        return [str(folder / "bin" / "clusterctl")], f"failed: {last_line(output)}"
    command = [str(folder / "bin" / "clusterctl")]
    code, output = run([*command, "--help"], ROOT)
    return command, "ok" if code == 0 else f"failed: {last_line(output)}"


def link_sent(folder: Path) -> Path:
    """Make the package as nodes have it, without what is only here."""
    package = folder / "clusterctl"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name in ("node", "protocol"):
        (package / name).symlink_to(ROOT / "clusterctl" / name)
    return folder


def judge_import(done: tuple[int, str]) -> str:
    """Write how many modules were imported."""
    code, output = done
    return f"{last_line(output)} modules" if code == 0 else f"failed: {last_line(output)}"


def try_commands(client: Sequence[str], folder: Path, inventory: str) -> list[str]:
    """Run all commands; returns a cell for each column."""
    with tempfile.TemporaryDirectory(dir=folder) as text:
        project = Path(text)
        files = {"inventory.yaml": inventory, "job.yaml": JOB, "hello.py": SCRIPT, "requirements.txt": ""}
        for name, content in files.items():
            (project / name).write_text(content, encoding="utf-8")
        return [try_column(client, project, commands) for commands in COMMANDS.values()]


def try_column(client: Sequence[str], project: Path, commands: Sequence[Sequence[str]]) -> str:
    """Run the commands of a column up to one that fails."""
    for command in commands:
        code, output = run([*client, *command], project)
        if code != 0:
            return f"failed: {command[0]} exits with {code}: {last_line(output)}"
    return "ok"


def tabulate_torch(pythons: Sequence[Path]) -> Iterable[list[str]]:
    """Yield a row for each interpreter with torch: how many tests of each kind passed."""
    yield ["torch", "Python", *TORCH_TESTS]
    ask = "import sys, torch; print(torch.__version__, '%d.%d' % sys.version_info[:2])"
    for python in pythons:
        torch, version = run([str(python), "-c", ask], ROOT)[1].split()[-2:]
        yield [torch, version, *(try_tests(python, tests) for tests in TORCH_TESTS.values())]


def try_tests(python: Path, tests: Sequence[str]) -> str:
    """Run tests with an interpreter; returns how many passed, and which failed."""
    words = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    output = run(words, ROOT, limit=7200)[1]
    counts = dict(
        reversed(pair) for pair in re.findall(r"(\d+) (passed|failed|error|skipped)", last_line(output))
    )
    failed = re.findall(r"^(?:FAILED|ERROR) \S*::(\S+)", output, re.MULTILINE)
    return f"{counts.get('passed', 0)} passed" + (f", failed: {', '.join(failed)}" if failed else "")


def run(words: Sequence[str], folder: Path, limit: float = MAX_WAIT) -> tuple[int, str]:
    """Run a command to its end; returns its exit code, and what it printed."""
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, f"still running after {limit:.0f} s"
    return done.returncode, done.stdout


def last_line(output: str) -> str:
    """Return the last line that is not empty."""
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")


def write_table(name: str, table: Sequence[Sequence[str]]) -> None:
    """Replace a table of the page."""
    rows = [table[0], ["---"] * len(table[0]), *table[1:]]
    text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    begin, end = f"<!-- tools/versions.py {name} -->\n\n", "\n\n<!-- end -->"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    PAGE.write_text(f"{before}{begin}{text}{end}{rest.partition(end)[2]}", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    raise SystemExit(main())
