"""Cases of the data analyst's contract, run against our analyst.

`python -m tests.conformance.data_analyst FILE` runs any file of cases of that form.
"""
