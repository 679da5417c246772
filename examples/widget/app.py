"""A page without React, with the chat bubble of the runtime in its corner.

uvicorn --app-dir examples/widget app:app
"""

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse

from copilot_runtime import CopilotRuntime, DemoAdapter

app = FastAPI()


@app.get("/")
def show_page() -> FileResponse:
    return FileResponse(Path(__file__).with_name("index.html"))


runtime = CopilotRuntime(adapter=DemoAdapter())
runtime.mount(app, "/copilotkit", console=True)  # the widget is served beside the pages
