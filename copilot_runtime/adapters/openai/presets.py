"""An adapter for each service in `_presets`: all of them are `OpenAIAdapter`, with other habits.

`groq("llama-3.1-8b-instant")` takes what `OpenAIAdapter` takes.
"""

from functools import partial

from copilot_runtime.adapters.openai import services as _presets
from copilot_runtime.adapters.openai.adapter import OpenAIAdapter

azure = partial(OpenAIAdapter, preset=_presets.AZURE)
deepseek = partial(OpenAIAdapter, preset=_presets.DEEPSEEK)
groq = partial(OpenAIAdapter, preset=_presets.GROQ)
lmstudio = partial(OpenAIAdapter, preset=_presets.LM_STUDIO)
mistral = partial(OpenAIAdapter, preset=_presets.MISTRAL)
ollama = partial(OpenAIAdapter, preset=_presets.OLLAMA)
openrouter = partial(OpenAIAdapter, preset=_presets.OPENROUTER)
together = partial(OpenAIAdapter, preset=_presets.TOGETHER)
unify = partial(OpenAIAdapter, preset=_presets.UNIFY)
vllm = partial(OpenAIAdapter, preset=_presets.VLLM)
