"""What an answer cost, for its span: by the prices of `genai-prices`, where that is installed.

Its data takes half a second to read. That is done in a thread when the first cost is asked for, and
no answer waits for it: until then, costs are not known.
"""

import threading
from functools import cache
from importlib.util import find_spec

from copilot_runtime.adapters.pricing import are_prices_loaded, find_model_facts, load_prices_now
from copilot_runtime.api.events import Usage


def price_usage(usage: Usage, provider: str = "") -> float | None:
    """Return the US dollars of an answer; None if no price is known, or none yet.

    `provider` is who runs the model, as in `ADAPTERS`; by default, whom the usage names.
    """
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    if not are_prices_loaded():
        _begin_loading()
        return None
    price = find_model_facts(provider or usage.provider, usage.model).price(usage)
    return None if price is None else float(price)


@cache
def _begin_loading() -> None:
    if find_spec("genai_prices") is not None:
        threading.Thread(target=load_prices_now, name="prices", daemon=True).start()
