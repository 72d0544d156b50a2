"""What the pages show is true: files parse, commands exist, JSON has the keys that the code writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import pytest
from facts import keys_of
from pages import Block, blocks, commands

from clusterctl.cli.main import root
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.parse import parse_job

MIN_INVENTORY = "cluster: least\nnodes: [{host: gpu01}]\n"


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_yaml_is_a_file_of_ours(block: Block) -> None:
    """It is an inventory, a job, or some keys that may stand in an inventory."""
    if "\ncluster:" in f"\n{block.text}":
        assert parse_inventory(block.text, str(block)).nodes
    elif "\nname:" in f"\n{block.text}":
        assert parse_job(block.text, str(block)).name
    else:
        assert parse_inventory(MIN_INVENTORY + block.text, str(block)).nodes


def test_commands_exist() -> None:
    """Every verb and every option on the pages is one that there is; nothing runs."""
    found = dict.fromkeys((place, tuple(words), complete) for place, words, complete in commands())
    assert len(found) > 100
    assert [wrong for one in found for wrong in what_is_wrong(*one)] == []


def what_is_wrong(place: str, words: tuple[str, ...], complete: bool) -> Iterator[str]:
    """Say why a command on a page is none."""
    try:
        parse_command(list(words))
    except click.MissingParameter as missing:
        if complete:
            yield f"{place}: {missing.format_message()}"
    except click.UsageError as wrong:
        yield f"{place}: clusterctl {' '.join(words)}: {wrong.format_message()}"


def parse_command(words: list[str]) -> None:
    """Read a command line down to its verb, without calling the verb."""
    command, ctx = root, None
    while True:
        try:
            ctx = command.make_context(command.name, list(words), parent=ctx)
        except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
            return  # --help, --version, or a group by itself
        if not isinstance(command, click.Group):
            return
        rest = [*(vars(ctx).get("_protected_args") or vars(ctx).get("protected_args") or []), *ctx.args]
        if not rest:
            return
        _, found, words = command.resolve_command(ctx, rest)
        assert found is not None, f"no verb {rest[0]}"
        command = found


def example(marker: str) -> Any:
    """Give the JSON on the page of the command line that holds a key."""
    return next(json.loads(block.text) for block in blocks("json") if f'"{marker}"' in block.text)


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_examples_are_json(block: Block) -> None:
    """With the version that every document carries."""
    assert json.loads(block.text)["schema"] == 1


STATE = {
    "run": "a-1",
    "node": "gpu01",
    "state": "CANCELLED",
    "ranks": {"0": {"local_rank": 0, "exit": None, "signal": 15}},
}


def test_status_and_ps_write_these_keys() -> None:
    """The examples have the keys of the code, no more and no fewer."""
    from clusterctl.console.cleanup import warm_to_json
    from clusterctl.console.run.listing import runs_to_json
    from clusterctl.console.run.status import status_to_json
    from clusterctl.plans.cleanup import WarmServer
    from clusterctl.plans.runs.selection import Owner
    from clusterctl.plans.runs.state import parse_state

    parts = {"gpu01": parse_state(Untrusted({**STATE, "state": "RUNNING"}))}

    assert keys_of(example("world_size_seen")) == keys_of(status_to_json("a-1", parts))
    warm = warm_to_json({"gpu01": [WarmServer(4711, "python", "2.13.0", (), 1.0, 2.0, 3)]})
    runs = {**runs_to_json({"a-1": parts}, Owner("me@laptop")), "warm": warm}
    assert keys_of(example("runs")) == keys_of(runs)


def test_the_verdict_has_these_keys() -> None:
    """The same for the last line of `launch --json`, names of nodes aside."""
    from ends import judge

    from clusterctl.plans.runs.state import parse_state
    from clusterctl.plans.runs.verdict import verdict_to_json
    from clusterctl.protocol.root_cause import Failure

    failures = [Failure("gpu01", rank, 1, None, rank, ("no",)) for rank in (0, 1)]
    written = verdict_to_json(judge("a-1", {"gpu01": parse_state(Untrusted(STATE))}, failures))
    shown = example("exit_code")["verdict"]

    assert set(shown) == set(written)
    assert keys_of(shown["cause"]) == keys_of(written["cause"])


def test_findings_and_nodes_of_check_have_these_keys() -> None:
    """The same for `check --json`; of a node's facts the page shows some."""
    from dataclasses import fields

    from clusterctl.console.findings import check_to_json
    from clusterctl.plans.checks.framework import Finding

    shown = example("findings")
    nodes = parse_inventory(MIN_INVENTORY, "-").nodes
    written = check_to_json(nodes, {}, [])

    assert set(shown) == set(written)
    assert set(shown["nodes"][0]) == set(written["nodes"][0])
    assert set(shown["findings"][0]) == {field.name for field in fields(Finding)}
