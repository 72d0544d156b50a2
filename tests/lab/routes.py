"""An inventory of a lab whose nodes are behind one of them."""

from __future__ import annotations

import re
from pathlib import Path

from clusterctl.lab.labs import Lab


def behind(lab: Lab, folder: Path) -> Path:
    """Write an inventory of all nodes but the first, which is the way to them: by Include, Match and ProxyJump."""
    text = lab.inventory.read_text(encoding="utf-8")
    relay = re.search(r'  proxy_command: "(.*)"\n', text)
    assert relay is not None
    (folder / "gate.conf").write_text(
        f"Host gate\n HostName {lab.nodes[0].plan.host}\n User {lab.plan.account.name}\n Port {lab.plan.ssh_port}\n"
        f" IdentityFile {lab.directory / 'id_ed25519'}\n UserKnownHostsFile {lab.directory / 'known_hosts'}\n"
        f" ProxyCommand {relay[1]}\n",
        encoding="utf-8",
    )
    (folder / "config").write_text(
        f"Include {folder / 'gate.conf'}\nMatch host {lab.nodes[0].plan.host[:-1]}* !originalhost gate\n"
        " ProxyJump gate\n",
        encoding="utf-8",
    )
    text = text.replace(relay[0], "").replace('config: "none"', f"config: {folder / 'config'}")
    text = re.sub(rf"  - {{name: {lab.nodes[0].name},.*\n", "", text)
    (folder / "inventory.yaml").write_text(text, encoding="utf-8")
    return folder / "inventory.yaml"
