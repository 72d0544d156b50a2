"""Fuzz what reads frames on the client: COUNT cases of every verb, other ones each time; a fault is exit code 1."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "hostile"))

from fuzzing import DRIVERS, Tally, fuzz


def main() -> None:
    """Run and count; every fault shows the seed that gives it again."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=5000, help="cases of each verb")
    parser.add_argument("--seed", default=secrets.token_hex(4))
    parser.add_argument("--verb", choices=DRIVERS, help="of one verb only")
    wish = parser.parse_args()
    faults = 0
    for verb in [wish.verb] if wish.verb else DRIVERS:
        tally, began, known = Tally(), time.monotonic(), set()
        for fault in fuzz(verb, wish.count, wish.seed, tally):
            faults += 1
            if fault.what not in known:
                known.add(fault.what)
                print(fault, flush=True)
        took = time.monotonic() - began
        print(
            f"{verb:<8} {tally.cases} cases, {tally.refused} refused, {tally.taken} taken, {took:.1f} s",
            flush=True,
        )
    print(f"seed {wish.seed}: {faults} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
