"""Where both commands begin, and `python -m clusterctl`."""


def main() -> None:
    """Run the command line."""
    from clusterctl.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
