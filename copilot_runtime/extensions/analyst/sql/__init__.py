"""SQL that a model wrote: guarded, restricted to a person's rows, repaired."""

import logging

# sqlglot logs a warning, with the text, for each statement that it does not know
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
