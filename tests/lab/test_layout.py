"""The plan of a lab: which NIC of a node carries what."""

from __future__ import annotations

import pytest

from clusterctl.lab.layout import plan_nodes

pytestmark = pytest.mark.unit


def test_the_first_nic_is_for_ssh_and_the_others_train() -> None:
    """Nodes with different numbers of NICs have their training address in one network."""
    one, two, three = plan_nodes(3, ["eth0", "mgmt0+meth919", "mgmt0+meth919+meth920"])
    assert (one.host, one.training_nics) == (one.ip, ("eth0",))
    assert two.training_nics == ("meth919",) and three.training_nics == ("meth919", "meth920")
    assert [node.ip for node in (one, two, three)] == ["10.77.0.1", "10.77.0.2", "10.77.0.3"]
    assert len({nic.address for nic in three.nics}) == 3 and three.host != three.ip
