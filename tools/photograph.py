"""Write what users and programs see of this checkout into a folder, to compare two commits:  tools/photograph.py FOLDER

Help of all verbs, texts of keys and codes, exports, previews, refusals and JSON Schemas in both languages; all cases of
all codes with their placeholders; the keys of JSON; a checksum of each recording. `diff -r` of two such folders shows
what a change of the inside has changed outside.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
LANGUAGES = ("en", "zh")
GROUPS = {"lab": ("up", "down", "list", "break", "heal"), "inventory": ("show",)}  # verbs that have verbs
EXPLAINED = ("job", "inventory", "job.restart", "job.notify", "NET", "net-3", "job-41", "--json")
REFUSED = (
    "lunch",
    "launch nothing.yaml",
    "-i nothing.yaml check",
    "logs --node x,y",
    "check --nodes gpu[1-",
    "exec",
)
INVENTORY = "inventories/minimal.yaml"
RECORDINGS = (
    *("tests/node/gang/cases", "tests/node/supervise/recorded_runs", "tests/node/verbs/format_1"),
    *("tests/protocol/cases", "tests/plans/cases", "tests/specs/cases", "tests/hostile/frames"),
)
# Prints each case of each code; a fact shows as its name.
CASES = """
from clusterctl.codes.lookup import entries, word

class Fact(str):
    def __format__(self, form):
        return "<" + str.__str__(self) + ">"

def fill(code, case):
    facts = {}
    while True:
        try:
            return word(code, case, facts)
        except KeyError as missing:
            facts[missing.args[0]] = Fact(missing.args[0])

for code, entry in sorted(entries().items()):
    for case in sorted(entry.cases):
        print(code, case or "-", *fill(code, case), sep=" | ")
"""


def main() -> int:
    """Write the folder that is given."""
    if len(sys.argv) != 2:
        print(f"usage: {sys.argv[0]} FOLDER", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for language in LANGUAGES:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            shown = pool.map(partial(show, language), list_commands())
        (folder / f"shown.{language}.txt").write_text("\n".join(shown), encoding="utf-8")
        (folder / f"cases.{language}.txt").write_text(
            run(language, "-c", CASES, check=True).stdout, encoding="utf-8"
        )
    (folder / "json_keys.txt").write_bytes((ROOT / "tests/console/json_keys.txt").read_bytes())
    (folder / "recordings.txt").write_text(
        "".join(f"{line}\n" for line in list_recordings()), encoding="utf-8"
    )
    return 0


def list_commands() -> Iterator[list[str]]:
    """Yield the arguments of every command that is shown."""
    verbs = re.findall(r"^  ([a-z]+)  ", run("en", "-m", "clusterctl", "--help").stdout, re.MULTILINE)
    yield ["--help"]
    yield from ([verb, "--help"] for verb in verbs)
    yield from ([verb, inner, "--help"] for verb, inside in GROUPS.items() for inner in inside)
    yield from (["explain", words] for words in EXPLAINED)
    yield from (words.split() for words in REFUSED)
    for job in sorted(path.relative_to(ROOT) for path in ROOT.glob("playbooks/**/job*.yaml")):
        yield from (["-i", INVENTORY, "export", kind, str(job)] for kind in ("bash", "slurm"))
        yield ["-i", INVENTORY, "launch", str(job), "--dry-run"]
    for inventory in sorted(path.relative_to(ROOT) for path in ROOT.glob("inventories/*.yaml")):
        yield ["-i", str(inventory), "inventory", "show"]
    documents = re.findall(
        r"^ +([a-z][a-z ]*?)(?:  .*)?$", run("en", "-m", "clusterctl", "help", "json").stdout, re.M
    )
    yield from (["help", "json", *words.split()] for words in documents)


def list_recordings() -> Iterator[str]:
    """Yield checksum and path of each file that records what nodes did or tests expect."""
    for folder in RECORDINGS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
                yield f"{digest} {path.relative_to(ROOT)}"


def show(language: str, words: list[str]) -> str:
    """Return a command as typed, its exit code, and what it prints."""
    ended = run(language, "-m", "clusterctl", *words)
    text = f"$ clusterctl {' '.join(words)}\n[{ended.returncode}]\n{ended.stdout}{ended.stderr}"
    return text.replace(str(ROOT), "ROOT")


def run(language: str, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    """Run this checkout's Python, on a page 100 wide without colours."""
    variables = {"CLUSTERCTL_LANG": language, "COLUMNS": "100", "NO_COLOR": "1", "LANG": "C.UTF-8"}
    env = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=env, text=True, capture_output=True, check=check
    )


if __name__ == "__main__":
    sys.exit(main())
