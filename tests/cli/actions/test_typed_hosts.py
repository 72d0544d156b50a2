"""Machines as they are typed: behind `init`, at its question, behind `--hosts` and `inventory discover`."""

from __future__ import annotations

import pytest

from clusterctl.cli.actions.init.machines import ConnectOptions, read_hosts
from clusterctl.errors import SpecError


@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        (["gpu01", "me@10.0.0.3:2222"], ["gpu01", "10.0.0.3"]),
        (["gpu01,me@10.0.0.3:2222", "gpu09"], ["gpu01", "10.0.0.3", "gpu09"]),
        (["gpu01, gpu02"], ["gpu01", "gpu02"]),
        (["gpu[01-02,05],gpu09"], ["gpu01", "gpu02", "gpu05", "gpu09"]),
    ],
)
def test_machines_are_separated_by_commas_or_spaces(words: list[str], hosts: list[str]) -> None:
    """Not the numbers of a range."""
    assert [host.host for host in read_hosts(words, ConnectOptions()).hosts] == hosts


def test_a_word_that_is_no_machine_is_named() -> None:
    """The one word, not all that stand with it."""
    with pytest.raises(SpecError, match="'gpu_0!'"):
        read_hosts(["gpu01,gpu_0!"], ConnectOptions())
