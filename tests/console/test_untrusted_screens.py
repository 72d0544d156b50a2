"""Whatever a node shows of its gauges, or of a deep check: a screen and findings come of it, no traceback."""

from __future__ import annotations

import io
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from clusterctl.console.run.hang import deep_to_json, render_deep
from clusterctl.console.top import TopLayout, render_top, top_to_json
from clusterctl.plans.checks.framework import Observations
from clusterctl.plans.checks.registry import evaluate
from clusterctl.plans.diagnose.network_tests import LINE_PREFIX, DeepCheckResult, parse_deep_result
from clusterctl.plans.facts.utilization import NodeUsage, parse_sample
from clusterctl.specs.inventory.model import Node, Ssh

NODES = tuple(Node(name=f"gpu{n}", index=n, host=f"10.0.0.{n}", ssh=Ssh()) for n in range(3))
few = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])

leaf = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from([0, 1, 2, -1])
)
junk = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
number = st.one_of(junk, st.integers(-2, 4), st.floats(1e-9, 1e9))
gpu = st.fixed_dictionaries(dict.fromkeys(("index", "busy", "memory_used", "memory", "temperature"), number))
sample = st.fixed_dictionaries(
    {
        **dict.fromkeys(("cpu", "memory", "memory_free"), number),
        "gpus": st.one_of(junk, st.lists(gpu, max_size=3)),
        "nics": st.one_of(
            junk, st.dictionaries(st.text(max_size=4), st.fixed_dictionaries({"sent": number}), max_size=2)
        ),
        "gpu_problem": junk,
    }
)
rows = st.lists(st.one_of(junk, st.tuples(number, number)), max_size=3)
group = st.fixed_dictionaries(
    {
        "nodes": st.one_of(junk, st.lists(st.integers(-1, 3), max_size=3)),
        "ranks": number,
        "ok": junk,
        "rows": rows,
        "at": number,
    }
)
numbers = st.one_of(junk, st.lists(st.integers(-1, 3), max_size=3))
found = st.fixed_dictionaries(
    {
        "ok": junk,
        "nodes": numbers,
        "slow_nodes": numbers,
        "links": st.lists(numbers, max_size=2),
        "slow_links": st.lists(numbers, max_size=2),
    }
)
kind = st.sampled_from(["all", "pairs", "again", "alone", "rest", "x"])
entry = st.one_of(
    junk,
    st.fixed_dictionaries({"round": kind, "groups": st.lists(group, max_size=3)}),
    st.fixed_dictionaries({"found": found}),
)


@few
@given(st.one_of(junk, sample))
def test_gauges(raw: Any) -> None:
    """A sample is shown, or none."""
    read = parse_sample(json.loads(json.dumps(raw)))
    known = [NodeUsage(node) if read is None else NodeUsage(node).with_sample(read, 1.0) for node in NODES]
    console = Console(file=io.StringIO(), width=100)
    for part in render_top(known, 9.0, 5.0, TopLayout(max_rows=2)):
        console.print(part)
    json.dumps(top_to_json(known, 9.0), allow_nan=False)


@few
@given(st.lists(entry, max_size=4))
def test_deep_checks(entries: list[Any]) -> None:
    """Findings name our nodes only, whatever a leader reports."""
    lines = [LINE_PREFIX + json.dumps(one) for one in entries]
    deep = parse_deep_result(lines, DeepCheckResult("gloo", tuple(node.name for node in NODES), 3))
    for finding in evaluate(NODES, Observations({}, {}, deep=deep)):
        assert set(finding.nodes) <= {node.name for node in NODES}
    render_deep(Console(file=io.StringIO()), deep)
    json.dumps(deep_to_json(deep), allow_nan=False)
