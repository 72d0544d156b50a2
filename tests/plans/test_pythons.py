"""Which Python of each node is used, and what an environment for a script needs."""

from __future__ import annotations

import pytest

from clusterctl.plans.discover import (
    FoundPythons,
    choose_pythons,
    list_imports,
    list_requirements,
    parse_pythons,
)
from clusterctl.protocol.messages.facts import Facts, FoundPython, Interpreter, Torch

CONDA = "~/miniconda3/envs/train/bin/python"


def facts(version: str, torch: str | None = None) -> Facts:
    """Make the facts of a node whose `python3` has this torch."""
    return Facts(
        interpreter=Interpreter(executable="/usr/bin/python3", version=version), torch=Torch(version=torch)
    )


def found(*pythons: tuple[str, str, str | None]) -> FoundPythons:
    """Make what a node reports."""
    return FoundPythons(
        tuple(FoundPython(path=path, version=version, torch=torch) for path, version, torch in pythons)
    )


def test_python3_is_used_where_it_has_the_common_torch() -> None:
    """Conda on one node, `python3` on the other: each has the same torch, and nothing is to be made."""
    nodes = {"a": facts("3.10.12"), "b": facts("3.11.2", "2.13.0")}
    pythons = {"a": found((CONDA, "3.11", "2.13.0"), ("~/old/bin/python", "3.10", "2.4.0"))}

    choice = choose_pythons(nodes, pythons)

    assert {name: python.path for name, python in choice.pythons.items()} == {"a": CONDA, "b": "python3"}
    assert (choice.torch, choice.without) == ("2.13.0", ())


def test_the_torch_of_most_nodes_then_the_newest() -> None:
    """Two nodes have 2.4, one has both; of equally common ones the newest; builds count as different."""
    both = found((CONDA, "3.11", "2.13.0+cu128"), ("/opt/conda/bin/python", "3.11", "2.4.0"))
    nodes = {name: facts("3.11") for name in "abc"}
    most = choose_pythons(
        nodes, {"a": both, "b": both, "c": found(("/opt/conda/bin/python", "3.11", "2.4.0"))}
    )
    equal = choose_pythons({"a": facts("3.11"), "b": facts("3.11")}, {"a": both, "b": both})
    builds = choose_pythons({"a": facts("3.11", "2.9.0+cpu"), "b": facts("3.11", "2.9.0+cu128")}, {})

    assert (most.torch, most.without) == ("2.4.0", ())
    assert equal.torch == "2.13.0+cu128"
    assert len(builds.without) == 1


def test_without_a_common_torch_the_pythons_have_one_version() -> None:
    """An environment is made of them: 3.11 is on both, conda's with torch on one, the system's on the other."""
    nodes = {"a": facts("3.9.2"), "b": facts("3.12.1")}
    pythons = {
        "a": found((CONDA, "3.11", "2.13.0"), ("/usr/bin/python3.9", "3.9", None)),
        "b": found(("/usr/bin/python3.11", "3.11", None), ("/usr/bin/python3.12", "3.12", None)),
    }

    choice = choose_pythons(nodes, pythons)

    assert {name: python.path for name, python in choice.pythons.items()} == {
        "a": CONDA,
        "b": "/usr/bin/python3.11",
    }
    assert (choice.torch, choice.without) == ("2.13.0", ("b",))


def test_no_torch_anywhere() -> None:
    """`python3` of both, and both lack it."""
    choice = choose_pythons({"a": facts("3.11.2"), "b": facts("3.11.9")}, {})

    assert [python.path for python in choice.pythons.values()] == ["python3", "python3"]
    assert (choice.torch, choice.without) == (None, ("a", "b"))


@pytest.mark.parametrize(
    "python",
    [
        {"path": "relative/bin/python", "version": "3.11", "torch": "2.0"},
        {"path": "/opt/\x1b[2J/bin/python", "version": "3.11", "torch": "2.0"},
        {"path": "/" + "a" * 2000, "version": "3.11", "torch": "2.0"},
        {"path": "/opt/python", "version": "3.11; rm", "torch": "2.0"},
        {"path": "/opt/python", "version": "3.11", "torch": "2.0\n- x"},
        {"version": "3.11"},
        "python",
    ],
)
def test_what_could_not_stand_in_an_inventory_is_left_out(python: object) -> None:
    """A node's answer is hostile until it is read."""
    good = {"path": "/opt/conda/bin/python", "version": "3.11", "torch": None}

    read = parse_pythons([python, good], ["pytorch/2.4", "bad\nname", 3])

    assert [one.path for one in read.pythons] == ["/opt/conda/bin/python"]
    assert read.modules == ("pytorch/2.4",)
    assert parse_pythons({"problem": "too slow"}, None) == FoundPythons()


def test_requirements_of_a_script() -> None:
    """What it imports and what does not lie next to it, by the names that pip knows; torch in its public version."""
    source = b"import os, numpy\nimport torch.nn as nn\nfrom PIL import Image\nfrom model import Net\nfrom . import x\n"

    imports = list_imports(source, {"model"})

    assert imports == ("PIL", "numpy", "torch")
    assert list_requirements(imports, "2.13.0+cu128") == ("torch==2.13.0", "numpy", "pillow")
    assert list_requirements((), None) == ("torch", "numpy")
    assert list_imports(b"def broken(:", ()) == ()
