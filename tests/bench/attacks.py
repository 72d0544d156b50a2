"""The whole table of attacks, with memory and processor time of the client: a red row is exit code 1.

The tests run a part of it; this takes some minutes.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "hostile"))

from conftest import laid
from test_attacks import Row, attack, judge, rows


def main() -> None:
    """Run the rows whose names match, and print what came of each."""
    parser = argparse.ArgumentParser(prog="attacks", description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="a regular expression, such as '^ps'")
    parser.add_argument("--tested", action="store_true", help="only what the tests run")
    parser.add_argument("--side-by-side", type=int, default=2, metavar="N")
    parser.add_argument("--backend", choices=["inproc", "netns"], default="inproc")
    wish = parser.parse_args()
    wanted = [row for row in rows(everything=not wish.tested) if re.search(wish.pattern, str(row))]
    red, began, cpu = 0, time.monotonic(), 0.0
    with laid(wish.backend) as ground, ThreadPoolExecutor(wish.side_by_side) as pool:

        def run(row: Row) -> tuple[Row, str, list[str], float]:
            world, seen = attack(ground, row)
            figures = f"exit code {seen.code}, {seen.memory >> 20} MiB, {seen.cpu:.1f} s"
            return row, figures, list(judge(row, ground, world, seen)), seen.cpu

        for row, figures, wrong, used in pool.map(run, wanted):
            red, cpu = red + bool(wrong), cpu + used
            print(f"{'RED' if wrong else 'ok ':<4}{row!s:<44}{figures}", flush=True)
            for line in wrong:
                print(f"      {' | '.join(line.split(chr(10)))[:600]}", flush=True)
    took = time.monotonic() - began
    print(f"{len(wanted)} rows, {red} red, {took:.0f} s; the client's processor time {cpu:.0f} s")
    sys.exit(1 if red else 0)


if __name__ == "__main__":
    main()
