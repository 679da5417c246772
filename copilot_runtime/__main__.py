"""`python -m copilot_runtime` is `copilot-runtime`."""

from copilot_runtime.cli.main import main

if __name__ == "__main__":
    main()
