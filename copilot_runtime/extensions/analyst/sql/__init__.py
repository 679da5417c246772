"""SQL written by a model: guarded, restricted to the user's rows, and repaired."""

import logging

# sqlglot logs a warning with the text of each unknown statement
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
