"""Actions of every kind: what a model may do on the server.

    copilot-runtime serve examples/actions/app:app
    uvicorn --app-dir examples/actions app:app

Ask for the weather in Oslo, for three dice with 20 sides, for a table for two, or to open the
vault. The schema a model sees comes from each function's signature and docstring.
"""

import asyncio
import os
import random
from collections.abc import Sequence
from datetime import date
from enum import Enum

from pydantic import BaseModel, Field

from copilot_runtime import (
    Action,
    CopilotRuntime,
    DemoAdapter,
    OpenAIAdapter,
    RunInput,
    action,
)


@action
def roll_dice(sides: int = 6, count: int = 1) -> list[int]:
    """Roll dice.

    Args:
        sides: How many sides each dice has.
        count: How many dice to roll.
    """
    return [random.randint(1, sides) for _ in range(count)]  # noqa: S311 - a game, not a key


class Unit(Enum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class Weather(BaseModel):
    city: str
    degrees: float
    unit: Unit


@action
async def get_weather(city: str, unit: Unit = Unit.CELSIUS) -> Weather:
    """Get the weather in a city. Two of these in one turn run at the same time."""
    await asyncio.sleep(0.2)  # stands for a request to a weather service
    degrees = 21.0 if unit is Unit.CELSIUS else 69.8
    return Weather(city=city, degrees=degrees, unit=unit)


class Booking(BaseModel):
    people: int = Field(ge=1, le=12, description="For how many people.")
    day: date = Field(description="Which day.")


@action
def book_table(booking: Booking) -> str:
    """Book a table in the restaurant."""
    return f"A table for {booking.people} on {booking.day} is booked."


@action
def open_vault() -> str:
    """Open the vault. This always fails, and the conversation goes on."""
    raise PermissionError("The vault stays closed at night.")


@action
def reset_everything() -> str:
    """Reset everything. Only administrators are offered this."""
    return "Everything is as new."


def actions(run: RunInput) -> Sequence[Action]:
    """Offer what the person may do: `<CopilotKit properties={{ role: "admin" }}>`.

    Anybody can write such a property. Where it matters, read a verified token from `run.headers`.
    """
    everybody = [roll_dice, get_weather, book_table, open_vault]
    return [*everybody, reset_everything] if run.properties.get("role") == "admin" else everybody


if os.environ.get("OPENAI_API_KEY"):
    adapter = OpenAIAdapter(model="gpt-4o")
else:
    print("OPENAI_API_KEY is not set: the demo model answers. It is not a language model.")
    adapter = DemoAdapter()

app = CopilotRuntime(adapter=adapter, actions=actions).app()
