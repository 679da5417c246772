"""The entry point of `copilot-runtime` and of `python -m copilot_runtime`."""

from typing import NoReturn

from copilot_runtime.base.gc_tuning import tune_for_startup


def main() -> NoReturn:
    """Run the command line. The collector is tuned first: imports would trigger it in vain."""
    tune_for_startup()
    from copilot_runtime.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
