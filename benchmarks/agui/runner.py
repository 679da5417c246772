"""Measures the AG-UI transport: `python -m benchmarks.agui.runner --help`, in the root."""

import sys

from benchmarks.agui.suite import AGUI_SUITE
from benchmarks.streaming.runner import main

if __name__ == "__main__":
    sys.exit(main(AGUI_SUITE))
