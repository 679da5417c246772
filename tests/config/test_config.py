"""Where settings come from, and what is said about wrong ones."""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from copilot_runtime.api import Parameters
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.cli.main import cli
from copilot_runtime.config.loader import adapter_name
from copilot_runtime.extensions.access.settings import JwtSettings
from copilot_runtime.extensions.settings import Settings, load_settings
from tests.in_one_test import in_one_test
from tests.yaml_bombs import BOMBS


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "copilot.yml"


def complaint(file: Path, text: str, environ: Mapping[str, str] | None = None) -> str:
    file.write_text(text)
    with pytest.raises(ConfigurationFailed) as caught:
        load_settings(file, environ or {})
    return caught.value.message.replace(str(file), "copilot.yml")


def test_the_environment_wins_over_the_file_and_the_file_over_the_defaults(file: Path) -> None:
    file.write_text("port: 1\nmax_turns: 2\nadapter:\n  name: openai\n  options: {model: m}\n")
    settings = load_settings(file, {"COPILOT_PORT": "9", "COPILOT_GUARDRAILS_DENY": "a b, c"})
    assert settings.model_dump(exclude_defaults=True) == {
        "port": 9,
        "max_turns": 2,
        "adapter": {"name": "openai", "options": {"model": "m"}},
        "guardrails": {"deny": ("a b", "c")},
    }


def test_what_the_command_line_says_wins_over_everything(file: Path) -> None:
    file.write_text("port: 1")
    assert load_settings(file, {"COPILOT_PORT": "2"}, overrides={"port": 3}).port == 3


def test_the_file_may_be_named_by_the_environment(file: Path) -> None:
    file.write_text("port: 1")
    assert load_settings(environ={"COPILOT_CONFIG": str(file)}).port == 1


def test_without_a_file_there_are_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings(environ={}) == Settings()


def test_copilot_yml_is_found_where_the_program_runs(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("port: 1")
    monkeypatch.chdir(file.parent)
    assert load_settings(environ={}).port == 1


@in_one_test("text", ["", "# nothing yet\n", "adapter:\nport:\n", "{}"])
def test_an_empty_file_or_key_means_the_default(file: Path, text: str) -> None:
    file.write_text(text)
    assert load_settings(file, {}) == Settings()


def test_variables_of_the_environment_stand_for_themselves_in_texts(file: Path) -> None:
    file.write_text("host: ${NAME}.local\nport: ${PORT:-99}\nbus: x$${NAME}\n")
    settings = load_settings(file, {"NAME": "me"})
    assert (settings.host, settings.port, settings.bus) == ("me.local", 99, "x${NAME}")


@in_one_test(
    ("text", "message"),
    [
        ("\nprot: 1", "copilot.yml, line 2: there is no setting 'prot'. Did you mean 'port'?"),
        (
            "services: {shop: grpc://shop:4000}",
            "copilot.yml, line 1: there is no setting 'services'. Services that tools call are "
            "in the file that the setting 'tools' names; those that are offered are "
            "'grpc.services'.",
        ),
        (
            "adapter:\n  nmae: x",
            "copilot.yml, line 2: there is no setting 'adapter.nmae'. Did you mean 'adapter.name'?",
        ),
        (
            "mcpApps: {}",
            "copilot.yml, line 1: there is no setting 'mcpApps'. Did you mean 'mcp_apps'?",
        ),
        (
            "openGenerativeUI: true",
            "copilot.yml, line 1: there is no setting 'openGenerativeUI'. "
            "Did you mean 'open_generative_ui'?",
        ),
        (
            "log_level: loud",
            "copilot.yml, line 1: 'log_level' is 'loud'; "
            "it should be 'critical', 'error', 'warning', 'info' or 'debug'.",
        ),
        (
            "max_turns: 0",
            "copilot.yml, line 1: 'max_turns' is 0; it should be greater than 0.",
        ),
        (
            "forward_headers: [Cookie]",
            "copilot.yml, line 1: 'forward_headers' is ['Cookie']; "
            "it is refused because cookie cannot be forwarded.",
        ),
        ("port: 1\nport: 2", "copilot.yml, line 2: 'port' was set before, on line 1."),
        (
            "host: ${NOPE}",
            "copilot.yml, line 1: 'host' needs the environment variable 'NOPE', which is not set.",
        ),
        ("- port", "copilot.yml: expected settings such as 'port: 8000', found a list."),
        *((bomb, "copilot.yml, line 5: aliases (`*name`) repeat more than") for bomb in BOMBS),
        (
            "access:\n  roles: {writer: [runs:start]}\n  default_roles: [writer, nope]",
            "copilot.yml, line 3: 'access.default_roles' is ['writer', 'nope']; it is refused "
            "because 'nope' is not a role; known roles: operator, user, reader, writer.",
        ),
        (
            "audit: {file: audit.jsonl, key: abc}",
            "copilot.yml, line 1: 'audit.key' is not valid; it is refused because it must have 32 "
            "bytes or more; it has 3: `openssl rand -hex 32` prints some.",
        ),
        (
            "jwt: {algorithms: [HS256], secret: short}",
            "copilot.yml, line 1: 'jwt.secret' is not valid; it is refused because it must have 32 "
            "bytes or more; it has 5: `openssl rand -hex 32` prints some.",
        ),
        (
            "secret: abc",
            "copilot.yml, line 1: 'secret' is not valid; it is refused because it must have 16 "
            "characters or more; it has 3: `openssl rand -hex 32` prints some.",
        ),
        ("port: [", "copilot.yml, line 1: not YAML: expected the node content, but found "),
    ],
)
def test_a_wrong_file_is_answered_with_line_key_and_way_out(
    file: Path, text: str, message: str
) -> None:
    assert complaint(file, text).startswith(message)


def test_every_wrong_setting_is_named_at_once(file: Path) -> None:
    message = complaint(file, "port: x\nmax_depth: -1\n")
    assert "line 1: 'port'" in message
    assert "line 2: 'max_depth'" in message


@in_one_test("text", ["a: &a [*a]", "a: " + "[" * 10_000, "a: 2026-99-99", "\x00"])
def test_a_malicious_file_is_an_error_and_no_crash(file: Path, text: str) -> None:
    assert "copilot.yml" in complaint(file, text)


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFailed, match=r"nope\.yml' cannot be read: No such file"):
        load_settings(tmp_path / "nope.yml", {})
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationFailed, match="not UTF-8"):
        load_settings(tmp_path / "binary.yml", {})


def test_a_wrong_variable_is_named(file: Path) -> None:
    assert complaint(file, "port: 1", {"COPILOT_PORT": "many"}).startswith(
        "The environment variable COPILOT_PORT: 'port' is 'many'"
    )


def test_a_misspelt_variable_is_named_but_a_strangers_is_not_ours(file: Path) -> None:
    stranger = {"COPILOT_ENVIRONMENT_NAME": "prod", "COPILOT_SERVICE_NAME": "web"}
    file.write_text("")
    assert load_settings(file, stranger) == Settings()
    assert complaint(file, "", {"COPILOT_MAX_MESAGES": "2"}) == (
        "The environment variable COPILOT_MAX_MESAGES sets nothing. "
        "Did you mean COPILOT_MAX_MESSAGES?"
    )


def test_a_key_in_the_options_is_never_repeated(file: Path) -> None:
    secret = "sk-very-secret"
    settings = load_settings(environ={"COPILOT_ADAPTER_OPTIONS": f'{{"api_key": "{secret}"}}'})
    assert secret not in repr(settings)
    assert secret not in complaint(file, "", {"COPILOT_ADAPTER_OPTIONS": secret})


@in_one_test(
    ("name", "url"),
    [
        ("threads", "postgresql://copilot:{}@db.example/copilot"),
        ("carrier", "redis://:{}@redis.example"),
        ("limits.store", "redis://:{}@redis.example"),
        ("api_keys.store", "postgres://copilot:{}@db.example/copilot"),
        ("planner.store", "dbos:postgresql://copilot:{}@db.example/copilot"),
        ("knowledge.vector_database", "postgresql://copilot:{}@db.example/copilot"),
        ("analyst.data", "sales=postgresql://copilot:{}@db.example/copilot"),
        ("mcp.servers", "https://copilot:{}@mcp.example/@team/tools"),
    ],
)
@in_one_test("mark", ["/", "#", "?", "[", "@"])
def test_a_password_in_a_url_is_percent_encoded_and_never_repeated(
    file: Path, name: str, url: str, mark: str
) -> None:
    file.write_text("")
    variable = f"COPILOT_{name.replace('.', '_').upper()}"
    load_settings(file, {variable: url.format(f"S3CR{quote(mark, safe='')}ETpw")})
    found = complaint(file, "", {variable: url.format(f"S3CR{mark}ETpw")})
    assert found.startswith(f"The environment variable {variable}: {name!r} is ")
    assert "write %2F for /, %23 for #" in found
    assert not any(part in found for part in ("S3CR", "ETpw", "example"))


@in_one_test("key", ["AKIA:hunter2@", "AKIA:hun/ter2@", "b?endpoint=http://u:hunter2@"])
def test_a_bucket_has_no_key_in_its_address(file: Path, key: str) -> None:
    for name in ("COPILOT_KNOWLEDGE_STORAGE", "COPILOT_ANALYST_FILES"):
        found = complaint(file, "", {name: f"s3://{key}bucket"})
        assert "the keys are in AWS_ACCESS_KEY_ID" in found
        assert not any(part in found for part in ("AKIA", "hun", "ter2"))
    load_settings(file, {"COPILOT_PLANNER_STORE": "sqlite:///srv/a@b.db"})
    load_settings(file, {"COPILOT_KNOWLEDGE_STORAGE": "s3://b/a@b?endpoint=http://127.0.0.1:1"})


def test_a_folder_in_place_of_the_settings_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copilot.yml").mkdir()
    with pytest.raises(ConfigurationFailed, match="is a folder"):
        load_settings(environ={})


def test_a_secret_is_not_repeated_with_its_section(file: Path) -> None:
    found = complaint(file, f"jwt: {{secret: {'s' * 32}, algorithms: [RS256]}}")
    assert "'jwt' is {'secret': '***', 'algorithms': ['RS256']}" in found
    assert "hunter2" not in complaint(file, "service_tokens: hunter2")
    with pytest.raises(ValidationError) as caught:
        JwtSettings(secret="hunter2", algorithms=("HS256",))
    assert "hunter2" not in str(caught.value)


@in_one_test(
    ("name", "section"),
    [
        ("secret", "secret: {}"),
        ("jwt.secret", "jwt: {{algorithms: [HS256], secret: {}}}"),
        ("service_tokens.secrets", "service_tokens: {{secrets: [{}]}}"),
        ("audit.key", "audit: {{key: {}}}"),
    ],
)
@in_one_test("secret", ["0123456789abcdef0123456789abcdef", "for-the-example-a-text-of-32-bytes"])
def test_a_secret_that_stood_in_an_example_is_refused(
    file: Path, name: str, section: str, secret: str
) -> None:
    found = complaint(file, section.format(secret))
    assert f"{name!r} is " in found
    assert "the secret of an example, which is published" in found
    assert secret not in found


def test_settings_made_in_code_are_checked_as_well() -> None:
    with pytest.raises(ConfigurationFailed, match="Settings: 'port' is -1"):
        Settings(port=-1)


@in_one_test(
    ("written", "origin"),
    [
        ("HTTPS://APP.example.com", "https://app.example.com"),
        ("https://app.example.com/", "https://app.example.com"),
        ("https://app.example.com:443", "https://app.example.com"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("capacitor://localhost", "capacitor://localhost"),
        ("*", "*"),
    ],
)
def test_an_origin_is_compared_as_browsers_send_it(written: str, origin: str) -> None:
    assert load_settings(environ={"COPILOT_CORS_ORIGINS": written}).cors_origins == (origin,)


@in_one_test(
    "written",
    [
        "app.example.com",
        "https://*.example.com",
        "https://app.example.com/chat",
        "https://ann@app.example.com",
        '["https://app.example.com"]',
        "null",
    ],
)
def test_an_origin_that_no_browser_sends_is_refused_with_the_way_out(
    file: Path, written: str
) -> None:
    message = complaint(file, "", {"COPILOT_CORS_ORIGINS": written})
    assert message.startswith("The environment variable COPILOT_CORS_ORIGINS: 'cors_origins' is ")
    shown = written.replace("ann@", "***@")
    assert f"{shown!r} is not an origin: write scheme://host or scheme://host:port" in message
    assert "is not an origin" in complaint(file, f"cors_origins: [{written!r}]")


@in_one_test("path", ["graphql", "/a b", "/{x}", "/a?b", "/a#b", "/a%20b", "/a\n"])
def test_a_path_that_no_request_could_have_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationFailed, match=r"'path' is .* a path begins with a slash"):
        Settings(path=path)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().port = 1


def test_every_setting_says_what_it_is_for() -> None:
    rows = Settings.describe()
    assert [row.name for row in rows if not row.description.endswith(".")] == []
    assert len({row.variable for row in rows}) == len(rows)


@in_one_test(
    ("header", "forwarded"),
    [("Authorization", True), ("x-tenant", True), ("cookie", False), ("host", False)],
)
def test_only_named_headers_are_forwarded(header: str, forwarded: bool) -> None:
    assert Settings().forwards(header) is forwarded


def test_a_star_forwards_everything_but_cookies_and_what_belongs_to_the_connection() -> None:
    everything = Settings(forward_headers=("*",))
    assert everything.forwards("anything")
    assert not everything.forwards("Cookie")


def test_without_a_name_the_adapter_is_openai_if_there_is_a_key() -> None:
    assert adapter_name(Settings(), {}) == "demo"
    assert adapter_name(Settings(), {"OPENAI_API_KEY": "sk"}) == "openai"


def test_instructions_and_parameters_stand_in_the_file_and_in_the_environment(file: Path) -> None:
    file.write_text(
        "instructions: |\n  You are the clerk of a bookshop.\n  Be brief.\n"
        "parameters:\n  temperature: 0\n  max_tokens: 500\n  stop: [END]\n"
        "page_instructions: drop\npage_models: [gpt-4o*]\n"
    )
    environ = {
        "COPILOT_PARAMETERS_MAX_TOKENS": "9",
        "COPILOT_PARAMETERS_REASONING_EFFORT": "low",
        "COPILOT_PARAMETERS_PARALLEL_TOOL_CALLS": "false",
        "COPILOT_PARAMETERS_RESPONSE_SCHEMA": '{"type": "object"}',
    }
    settings = load_settings(file, environ)
    assert settings.instructions == "You are the clerk of a bookshop.\nBe brief.\n"
    assert settings.parameters.model_dump(exclude_none=True) == {
        "temperature": 0,
        "max_tokens": 9,
        "stop": ("END",),
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
        "response_schema": {"type": "object"},
    }
    assert settings.page_instructions == "drop"
    assert load_settings(file, {"COPILOT_INSTRUCTIONS": "Sing."}).instructions == "Sing."


def test_settings_have_every_parameter_there_is_but_the_tool_to_call() -> None:
    names = {*Settings().parameters.model_dump(), "tool_choice_name"}
    assert names == set(Parameters.__dataclass_fields__)


@in_one_test(
    ("text", "message"),
    [
        (
            "parameters:\n  temperature: hot",
            "copilot.yml, line 2: 'parameters.temperature' is 'hot'; it should be a valid number",
        ),
        (
            "parameters:\n  maxTokens: 9",
            "copilot.yml, line 2: there is no setting 'parameters.maxTokens'. "
            "Did you mean 'parameters.max_tokens'?",
        ),
        (
            "parameters:\n  temperature: on",
            "copilot.yml, line 2: 'parameters.temperature' is True; "
            "it is refused because it is a boolean, not a number.",
        ),
        (
            "page_instructions: hide",
            "copilot.yml, line 1: 'page_instructions' is 'hide'; "
            "it should be 'keep', 'context' or 'drop'.",
        ),
        (
            "page_models: ['*-mini']",
            "copilot.yml, line 1: 'page_models' is ['*-mini']; "
            "it is refused because '*-mini' has a * that is not its last character.",
        ),
        ("instructions: [a]", "copilot.yml, line 1: 'instructions' is ['a']; it should be a valid"),
        (
            "planner:\n  retention: 90d",
            "copilot.yml, line 2: 'planner.retention' is '90d'; "
            "it should be a number of seconds, such as 86400 for a day.",
        ),
        (
            "planner:\n  store: redis://x",
            "copilot.yml, line 2: 'planner.store' is 'redis://***'; it should be sqlite:PATH, "
            "postgresql://..., dbos:postgresql://... or memory.",
        ),
        (
            "events:\n  store: redis:x",
            "copilot.yml, line 2: 'events.store' is 'redis:x'; "
            "it should be sqlite:PATH, memory or none.",
        ),
    ],
)
def test_wrong_instructions_and_parameters_are_named(file: Path, text: str, message: str) -> None:
    assert complaint(file, text).startswith(message)


def test_a_variable_with_one_underscore_too_many_is_no_secret(file: Path) -> None:
    message = complaint(file, "", {"COPILOT_PARAMETERS__TEMPERATURE": "0"})
    assert "Did you mean COPILOT_PARAMETERS_TEMPERATURE?" in message


def test_nobody_reads_the_instructions_in_the_settings_of_a_traceback() -> None:
    assert "bookshop" not in repr(Settings(instructions="You are the clerk of a bookshop."))


@in_one_test(
    ("text", "sentence"),
    [
        (
            "adapter: openai",
            "'adapter' is 'openai', but it is a section with the keys name, options: "
            "write adapter: {name: openai}.",
        ),
        (
            "mcp: http://localhost",
            "'mcp' is one value, but it is a section with the keys servers, allowed: "
            "write mcp: {servers: ...}.",
        ),
        ("threads: /tmp/x.db", "does not begin with the name of a store: write sqlite:/tmp/x.db"),
        ("threads: C:\\x.db", "write sqlite:C:\\x.db for a file"),
        ("path: graphql", "a path begins with a slash: write /graphql."),
        ("adapter:\n  options: model=gpt", 'not a JSON object such as {"model": "gpt-4o"}'),
        ("adapter:\n  options: '[1]'", 'not a JSON object such as {"model": "gpt-4o"}'),
        ("keep_alive: yes", "it is a boolean, not a number: write one, such as 15."),
        ("port: true", "it is a boolean, not a number: write one, such as 8000."),
        ("max_concurrent_runs: no", "it is a boolean, not a number: write one, such as 0."),
    ],
)
def test_what_newcomers_write_is_answered_with_what_they_mean(
    file: Path, text: str, sentence: str
) -> None:
    assert sentence in complaint(file, text)


def test_an_address_with_a_password_is_not_made_a_file(file: Path) -> None:
    assert "write sqlite:threads.db for a file" in complaint(file, "threads: Me:pw@host/db")


def test_a_variable_that_names_a_whole_section_is_answered_with_its_first_key(file: Path) -> None:
    said = complaint(file, "", {"COPILOT_ADAPTER": "openai"})
    assert said == (
        "The environment variable COPILOT_ADAPTER sets nothing. Did you mean COPILOT_ADAPTER_NAME?"
    )


def test_options_that_are_no_json_are_named_without_their_text(file: Path) -> None:
    said = complaint(file, "", {"COPILOT_ADAPTER_OPTIONS": "api_key=sk-secret"})
    assert "COPILOT_ADAPTER_OPTIONS" in said
    assert "secret" not in said


def test_the_list_of_settings_shows_a_value_that_is_no_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COPILOT_DEPLOYMENT", os.fsdecode(b"half \xff"))
    result = CliRunner().invoke(cli, ["settings"])

    assert result.exit_code == 0
    assert "half \ufffd" in result.stdout


def test_the_list_of_settings_shows_no_password_of_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copilot.yml").write_text(
        "threads: postgresql://copilot:${DATABASE_PASSWORD}@db.example/app?sslmode=require\n"
        "carrier: redis://:hunter2@cache.example:6379/0\n"
        "cloud_base_url: https://hunter2@cloud.example/\n"
        "limits: {store: 'redis://u:hunter2@cache.example/1'}\n"
        "planner: {store: 'dbos:postgresql://u:hunter2@db.example/plans'}\n"
        "api_keys: {store: 'postgresql:///app?host=db.example&password=hunter2'}\n"
        "transcription: {base_url: 'https://u:hunter2@speech.example/v1'}\n"
        "analyst: {data: ['postgresql://u:hunter2@sales.example/s']}\n"
        "knowledge: {vector_database: 'postgresql://u:hunter2@vectors.example/v'}\n"
        "mcp: {servers: ['https://a.example/mcp?theApiKey=hunter2', 'https://u:hunter2@b.example']}\n"
    )
    monkeypatch.delenv("COPILOT_THREADS", raising=False)
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    result = CliRunner().invoke(cli, ["settings", "--config", str(tmp_path / "copilot.yml")])

    assert result.exit_code == 0
    assert "hunter2" not in result.stdout
    assert "postgresql://***@db.example/app?sslmode=require" in result.stdout
    assert "https://a.example/mcp?theApiKey=***, https://***@b.example" in result.stdout
