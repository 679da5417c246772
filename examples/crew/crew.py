"""A crew of CrewAI that speaks AG-UI, in an environment of its own: see README.md."""

# crewai is not here: it wants other versions of packages than this checkout has
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false
# pyright: reportUntypedClassDecorator=false, reportAttributeAccessIssue=false
# pyright: reportUnknownParameterType=false

from ag_ui_crewai.endpoint import add_crewai_crew_fastapi_endpoint
from crewai import LLM, Agent, Crew, Task
from crewai.project import CrewBase, agent, crew, task
from fastapi import FastAPI

MODEL = LLM(model="openai/gpt-4o")


@CrewBase
class Research:
    """Finds out about a topic."""

    agents_config = {}  # noqa: RUF012  # instead of a file of YAML
    tasks_config = {}  # noqa: RUF012

    @agent
    def researcher(self) -> Agent:
        return Agent(
            role="Researcher",
            goal="Find out about {topic}",
            backstory="Reads a lot, writes little.",
            llm=MODEL,
        )

    @task
    def research(self) -> Task:
        return Task(
            description="Find out about {topic}.",
            expected_output="One sentence.",
            agent=self.researcher(),
        )

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks, chat_llm=MODEL)


app = FastAPI()
add_crewai_crew_fastapi_endpoint(app, Research(), "/crew")
