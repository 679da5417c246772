"""A plugin has a section of the settings, which is named like its entry point."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.cli.main import cli
from copilot_runtime.config.loader import load_settings
from copilot_runtime.config.section import Section

PLUGIN = """
from copilot_runtime.app.extension import Extension
from copilot_runtime.config.section import Count, Section
from pydantic import Field

class WeatherSettings(Section):
    city: str = Field(default="Rome", description="City of the forecast.")
    days: Count = Field(default=3, description="Days of the forecast.")

class Weather(Extension):
    name = "weather"
    settings = WeatherSettings
"""


@pytest.fixture
def weather(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Section]]:
    """Install a package with the extension `weather`, and return the class of its section."""
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[copilot_runtime.extensions]\nweather = acme_weather:Weather\n"
    )
    (tmp_path / "acme_weather.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    from acme_weather import WeatherSettings  # pyright: ignore  # written above

    yield WeatherSettings
    sys.modules.pop("acme_weather", None)


def test_the_file_and_the_environment_set_the_section_of_a_plugin(
    weather: type[Section], tmp_path: Path
) -> None:
    (tmp_path / "copilot.yml").write_text("weather:\n  city: Oslo\n")

    settings = load_settings(environ={"COPILOT_WEATHER_DAYS": "5"})

    assert settings.section(weather) == weather.model_validate({"city": "Oslo", "days": 5})


def test_a_wrong_value_in_the_section_of_a_plugin_is_explained(
    weather: type[Section],  # it is installed
) -> None:
    with pytest.raises(ConfigurationFailed, match=r"DAYS: 'weather\.days' is 'many'"):
        load_settings(environ={"COPILOT_WEATHER_DAYS": "many"})


def test_a_section_without_a_default_is_explained(
    weather: type[Section], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Incomplete(weather):
        sea: str

    monkeypatch.setattr("acme_weather.Weather.settings", Incomplete)

    with pytest.raises(ConfigurationFailed, match="'weather' have no valid defaults"):
        load_settings(environ={})


def test_a_name_that_no_section_can_have_is_explained(
    weather: type[Section],  # it is installed
    tmp_path: Path,
) -> None:
    (tmp_path / "acme-1.0.dist-info" / "entry_points.txt").write_text(
        "[copilot_runtime.extensions]\nwet-weather = acme_weather:Weather\n"
    )

    with pytest.raises(ConfigurationFailed, match="'wet-weather' cannot name a section"):
        load_settings(environ={})


def test_the_command_settings_lists_the_section_of_a_plugin(
    weather: type[Section],  # it is installed
) -> None:
    listed = CliRunner().invoke(cli, ["settings"], env={"COPILOT_WEATHER_CITY": "Oslo"})

    assert "weather.city" in listed.output
    assert "City of the forecast. [COPILOT_WEATHER_CITY]" in listed.output


class TideSettings(Section):
    """A section of an extension that no package installs."""

    port: str = "Brest"


class Tides(Extension):
    """Remembers its section."""

    name = "tides"
    settings = TideSettings

    def build(self, core: Core) -> Contribution:
        self.section = core.settings.section(TideSettings)
        return Contribution()


def test_an_extension_that_is_not_installed_gets_the_defaults_of_its_section() -> None:
    tides = Tides()

    CopilotRuntime(adapter=DemoAdapter(), extensions=[tides], settings=Settings(threads="memory"))

    assert tides.section == TideSettings(port="Brest")
