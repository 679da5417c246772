"""Speech to text, for pages that record it."""

from copilot_runtime.api.adapter import Transcriber
from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.config.loader import has_transcription


class TranscriptionExtension(Extension):
    """Uses the program's transcriber, or OpenAI's if the settings enable transcription."""

    name = "transcription"
    options = ("transcriber",)

    def build(self, core: Core) -> Contribution:
        argument = core.options.get("transcriber")
        self._transcriber: Transcriber | None = argument or _build_transcriber(core)
        return Contribution(parts={Transcriber: self._transcriber} if self._transcriber else {})

    async def aclose(self) -> None:
        close = getattr(self._transcriber, "aclose", None)
        if close is not None:
            await close()


def _build_transcriber(core: Core) -> Transcriber | None:
    if not has_transcription(core.settings):
        return None
    from copilot_runtime.adapters.transcription import OpenAITranscriber

    chosen = core.settings.transcription
    return OpenAITranscriber(
        chosen.model or "whisper-1",
        base_url=chosen.base_url,
        language=chosen.language,
        http_client=core.http_client,
    )
