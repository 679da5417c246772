"""Cases recorded from Copilot-LD, run against what we have of the same kind.

`python -m tests.conformance.copilot_ld FILE` runs any file of cases of that form.
"""
