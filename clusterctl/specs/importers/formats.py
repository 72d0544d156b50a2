"""The formats that `inventory import --format` takes, with what each is called."""

from __future__ import annotations

from clusterctl.translation import to_translate

FORMAT_DESCRIPTIONS = {
    "deepspeed": to_translate("a DeepSpeed hostfile"),
    "mpi": to_translate("an MPI hostfile"),
    "ansible": to_translate("an Ansible inventory"),
    "hosts": to_translate("a list of hosts"),
    "ssh": to_translate("an SSH configuration"),
}
