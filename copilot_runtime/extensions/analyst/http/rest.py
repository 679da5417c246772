"""The analyst's routes as `/docs` describes them; the endpoint reads and answers the requests."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from copilot_runtime.transports.rest_route import declare_routes, describe_body, describe_stream

_SQL = "SELECT region, sum(revenue) AS revenue FROM orders GROUP BY ALL"


class AskModel(BaseModel):
    """A question, or the answer to an approval."""

    message: str | None = Field(default=None, examples=["Which region sells most?"])
    conversation_history: list[dict[str, Any]] | None = Field(
        default=None, description="Messages with `role` and `content`.", examples=[[]]
    )
    dataset_label: str | None = Field(default=None, examples=["orders"])
    data_context: dict[str, Any] | None = Field(
        default=None, description="What the page shows.", examples=[{}]
    )
    agent_name: str | None = Field(default=None, description="Only rows of this `source_name`.")
    session_id: str | None = Field(
        default=None, description="Keeps the conversation on the server.", examples=["session-1"]
    )
    approval: dict[str, Any] | None = Field(
        default=None,
        description="The answer to an approval request: `id`, `approved` and `note`.",
        examples=[{"id": "ck-1f", "approved": True, "note": "Go on."}],
    )
    resumable: bool | None = Field(
        default=None,
        description="Whether the answer goes on when you leave: come back with Last-Event-ID.",
    )


class AnswerModel(BaseModel):
    """The answer to a question."""

    success: bool = Field(examples=[True])
    response: str = Field(description="Markdown.", examples=["North sells most."])
    thoughts_count: int = Field(examples=[4])
    chart: dict[str, Any] | None = Field(description="The last of `charts`.", examples=[None])
    download: dict[str, Any] | None = Field(examples=[None])
    charts: list[dict[str, Any]] = Field(examples=[[]])
    tables: list[dict[str, Any]] = Field(
        examples=[[{"title": "Revenue", "rows": [["North", 120]], "total_rows": 1, "sql": _SQL}]]
    )
    downloads: list[dict[str, Any]] = Field(examples=[[]])
    answer: dict[str, Any] | None = Field(
        description="How far the answer can be trusted, and the SQL it came from.", examples=[None]
    )
    question: dict[str, Any] | None = Field(
        description="What the analyst asks back.", examples=[None]
    )
    approval: dict[str, Any] | None = Field(
        description="What waits for a yes: send its `id` back as `approval`.", examples=[None]
    )
    thoughts: list[dict[str, Any]] = Field(examples=[[]])


class AnalystModel(BaseModel):
    """The analyst of this runtime."""

    name: str = Field(examples=["analyst"])
    memory_enabled: bool = Field(examples=[True])
    allow_save: bool = Field(examples=[True])
    tools: list[str] = Field(examples=[["run_sql", "plot_data"]])
    problems: list[str] = Field(description="`data` if some could not be loaded.", examples=[[]])


class DatasetModel(BaseModel):
    """A data set. The rows are those that you may see."""

    name: str = Field(examples=["orders"])
    description: str = Field(examples=["Orders of the shop."])
    source: str = Field(examples=["orders"])
    row_count: int | None = Field(description="null while data is loaded.", examples=[1200])
    columns: list[dict[str, Any]] = Field(
        description="Each with `name` and `type`; of one data set, also with its statistics.",
        examples=[[{"name": "region", "type": "VARCHAR"}]],
    )
    fingerprint: str = Field(description="Of the columns.", examples=["4b5c2d0e4d47"])
    owner: str | None = Field(description="Who saved it.", examples=[None])
    is_saved: bool = Field(examples=[False])
    tags: list[str] = Field(examples=[[]])
    time_range: list[str] | None = Field(
        default=None, description="From when to when; of one data set.", examples=[None]
    )


class DatasetListModel(BaseModel):
    """The data sets that you may ask about, and how far others are loaded."""

    datasets: list[DatasetModel]
    progress: list[dict[str, Any]] = Field(examples=[[]])


class MemoryModel(BaseModel, extra="allow"):
    """Something that is remembered: of columns, forms of SQL and repairs, and no values."""

    id: str = Field(examples=["3f2a"])
    kind: str = Field(examples=["query"])
    text: str = Field(examples=["Revenue is grouped by region."])
    hits: float = Field(description="Its weight.", examples=[2.5])
    is_pinned: bool = Field(examples=[False])


class MemoryListModel(BaseModel):
    """The memories of your questions."""

    enabled: bool = Field(examples=[True])
    memories: list[MemoryModel]


class MemoryChange(BaseModel):
    """The fields to change; omitted ones stay."""

    text: str | None = Field(default=None, examples=["Revenue is without tax."])
    note: str | None = Field(default=None, examples=["Said by Ann."])
    is_pinned: bool | None = Field(default=None, examples=[True])
    is_good: bool | None = Field(default=None, examples=[True])


class CountModel(BaseModel):
    """How many were forgotten."""

    count: int = Field(examples=[3])


_EVENTS = describe_stream("Server-sent events: `thought`, then `response` or `error`, then `done`.")
_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file.",
        "content": {
            kind: {"schema": {"type": "string"}} for kind in ("text/csv", "application/json")
        },
    }
}
_CHART: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The chart; as JSON, for Plotly and for Vega-Lite.",
        "content": {
            "image/png": {"schema": {"type": "string", "format": "binary"}},
            "image/svg+xml": {"schema": {"type": "string"}},
            "application/json": {"schema": {"type": "object"}},
        },
    }
}
AgentName = Annotated[str, Query(description="Only rows of this `source_name`.")]
TableName = Annotated[str, Query(description="Only entries about this table.")]
DatasetName = Annotated[str, Path(examples=["orders"])]
DownloadId = Annotated[str, Path(description="From an answer.")]
ChartName = Annotated[str, Path(description="Ends in .png, .svg or .json.", examples=["c1.png"])]
MemoryId = Annotated[str, Path(examples=["3f2a"])]
Theme = Annotated[Literal["light", "dark"], Query(description="Of a picture.")]


@declare_routes("analyst")
def rest_routes(analyst: APIRouter) -> None:
    """Declare the routes of the analyst."""
    body = describe_body(AskModel)

    @analyst.post(
        "/copilot/stream/oai", response_class=Response, responses=_EVENTS, openapi_extra=body
    )
    async def stream_answer() -> None:
        """Ask a question about data, and follow how it is answered."""

    @analyst.post("/copilot/stream", response_class=Response, responses=_EVENTS, openapi_extra=body)
    async def stream_answer_again() -> None:
        """The same as `copilot/stream/oai`."""

    @analyst.post("/copilot/chat", response_model=AnswerModel, openapi_extra=body)
    async def answer() -> None:
        """Ask a question about data, and get the whole answer."""

    @analyst.get("/analyst", response_model=AnalystModel)
    async def show_analyst() -> None:
        """Read what the analyst can do."""

    @analyst.get("/analyst/datasets", response_model=DatasetListModel)
    async def list_datasets(agent: AgentName = "") -> None:
        """List the data sets that you may ask about."""

    @analyst.get("/analyst/datasets/{dataset}", response_model=DatasetModel)
    async def show_dataset(dataset: DatasetName, agent: AgentName = "") -> None:
        """Read a data set with statistics of its columns."""

    @analyst.delete("/analyst/datasets/{dataset}", response_model=dict[str, Any])
    async def delete_dataset(dataset: DatasetName) -> None:
        """Delete a data set that you saved."""

    @analyst.get("/analyst/downloads/{download}", response_class=Response, responses=_FILE)
    async def download(download: DownloadId) -> None:
        """Fetch the rows of an answer, as the one who asked."""

    @analyst.get("/analyst/charts/{chart}", response_class=Response, responses=_CHART)
    async def draw(chart: ChartName, theme: Theme = "light") -> None:
        """Fetch a chart of an answer, as the user who asked."""

    @analyst.get("/analyst/memory", response_model=MemoryListModel)
    async def list_memories(table: TableName = "") -> None:
        """List the memory of your questions."""

    @analyst.delete("/analyst/memory", response_model=CountModel)
    async def forget_all(table: TableName = "") -> None:
        """Delete the memory of all your questions, or of a table."""

    body = describe_body(MemoryChange)

    @analyst.patch("/analyst/memory/{memory}", response_model=MemoryModel, openapi_extra=body)
    async def edit(memory: MemoryId) -> None:
        """Change or pin a memory entry."""

    @analyst.delete("/analyst/memory/{memory}", response_model=dict[str, Any])
    async def forget(memory: MemoryId) -> None:
        """Delete a memory entry."""
