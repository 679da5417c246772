"""The tables of streams: which figures of a case are shown."""

from benchmarks.streaming.report import Columns, Table

_WAITS: Columns = (
    ("TTFT p50 ms", "ttft_p50_ms"),
    ("TTFT p99", "ttft_p99_ms"),
    ("chunk p50 ms", "chunk_p50_ms"),
    ("chunk p99", "chunk_p99_ms"),
)
_FLOOD: Columns = (
    ("CPU us/chunk", "cpu_us_per_chunk"),
    ("chunks/s", "chunks_per_s"),
    ("wall s", "wall_s"),
    ("wire B/chunk", "wire_bytes_per_chunk"),
)
_PACED: Columns = (*_FLOOD[:2], *_WAITS, *_FLOOD[3:], ("RSS MB", "rss_after_mb"))
_CHATS: Columns = (
    ("CPU ms/chat", "cpu_ms_per_chat"),
    ("chats/s", "chats_per_s"),
    ("chat p50 ms", "chat_p50_ms"),
    ("chat p99", "chat_p99_ms"),
    ("RSS MB", "rss_after_mb"),
)
_MEMORY: Columns = (
    ("kB/open stream", "kb_per_stream"),
    ("idle MB", "idle_mb"),
    ("1 open", "open_1_mb"),
    ("50", "open_50_mb"),
    ("200", "open_200_mb"),
    ("1000", "open_1000_mb"),
    ("after", "after_mb"),
    ("TTFT p99 ms at 1000", "ttft_p99_ms"),
)
_START: Columns = (
    ("first answer s", "first_answer_s"),
    ("listening s", "listening_s"),
    ("CPU s", "start_cpu_s"),
    ("RSS MB", "rss_mb"),
)
_ABORTS: Columns = (
    ("left open", "leaked"),
    ("aborted", "aborted"),
    ("went on to their end", "went_on"),
    ("upstream closed", "closed"),
    ("close p50 ms", "close_p50_ms"),
    ("close p99", "close_p99_ms"),
)
STREAM_TABLES: dict[str, Table] = {
    "A": Table("flood, 32 streams", _FLOOD),
    "AL": Table("flood, 32 long streams", _FLOOD),
    "B": Table("200 streams of 20 chunks/s", _PACED),
    "B1": Table("20 streams of 20 chunks/s", _PACED),
    "C": Table("memory with open streams", _MEMORY),
    "C20": Table("1,000 streams of 20 chunks/s", _PACED),
    "D": Table("chats of one chunk", _CHATS),
    "DH": Table("chats of one chunk after 200 messages", _CHATS),
    "E": Table("start", _START),
    "F": Table("100 clients leave", _ABORTS),
    "T": Table("arguments of a call", _FLOOD),
}
