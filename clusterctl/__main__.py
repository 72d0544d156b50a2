"""Where both commands begin, and `python -m clusterctl`: an interrupt while modules load is one like any other."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C leaves with 130, however early it comes."""
    try:
        from clusterctl.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
