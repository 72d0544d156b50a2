"""Variables that a launch clears and `check` reports (CC-SYS-005)."""

CLEARED_NAMES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_NAME",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
CLEARED_PREFIXES = ("PET_", "TORCHELASTIC_")


def is_cleared(name: str) -> bool:
    """Return whether no worker inherits the variable."""
    return name in CLEARED_NAMES or name.startswith(CLEARED_PREFIXES)
