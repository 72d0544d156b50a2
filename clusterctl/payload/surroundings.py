"""What our own bootstrap leaves in the environment, and nobody else is to see."""

from __future__ import annotations

OURS = ("CLUSTERCTL_ACTIVATE_STATUS",)
