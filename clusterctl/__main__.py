"""Lets `python -m clusterctl` do what the command `clusterctl` does."""

from clusterctl.cli.main import main

main()
