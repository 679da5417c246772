"""Names, and what they stand for."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from copilot_runtime.api.registry import Registry, install_command
from copilot_runtime.base.errors import (
    AgentNotFound,
    ConfigurationFailed,
    MissingPackage,
    UnknownName,
)
from copilot_runtime.threads.url import build_store
from tests.in_one_test import in_one_test

BUILT_IN = {
    "mine": "copilot_runtime.base.errors:AgentNotFound",
    "lacking": "no_such_package.part:Thing",
}


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install a package with entry points: a good one, broken ones, and one with our name."""
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[tests.adapters]\n"
        "good = acme_good:Adapter\nbad = acme_bad:Adapter\n"
        "gone = acme_gone:Adapter\nempty = acme_good:Nothing\nmine = acme_good:Adapter\n"
    )
    (tmp_path / "acme_good.py").write_text("class Adapter: pass\n")
    (tmp_path / "acme_bad.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "acme"


def test_a_name_is_imported_when_it_is_asked_for() -> None:
    assert Registry("tests.nothing", BUILT_IN)["mine"] is AgentNotFound


def test_an_unknown_name_is_answered_with_the_known_ones_and_a_guess() -> None:
    with pytest.raises(UnknownName) as caught:
        Registry("tests.adapters", BUILT_IN)["mien"]
    assert caught.value.message == (
        "No adapter named 'mien'. Known: lacking, mine. Did you mean 'mine'?"
    )


def test_an_unknown_name_has_a_default_like_in_any_mapping() -> None:
    registry = Registry("tests.adapters", BUILT_IN)
    assert (registry.get("nobody"), registry.get("nobody", 1), "nobody" in registry) == (
        None,
        1,
        False,
    )


def test_a_missing_package_is_answered_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "copilot_runtime-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: copilot-runtime\nVersion: 9\nProvides-Extra: heavy\n"
        'Requires-Dist: no-such-package>=2; extra == "heavy"\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingPackage, match=r"pip install 'copilot-runtime\[heavy\]'"):
        Registry("tests.adapters", BUILT_IN)["lacking"]


@pytest.mark.usefixtures("acme")
def test_installed_packages_add_names_but_do_not_take_ours() -> None:
    registry = Registry("tests.adapters", BUILT_IN)
    assert {name: entry.origin for name, entry in registry.entries.items()} == {
        "bad": "acme",
        "empty": "acme",
        "gone": "acme",
        "good": "acme",
        "lacking": "copilot-runtime",
        "mine": "copilot-runtime",
    }
    assert registry["good"].__name__ == "Adapter"
    assert registry["mine"] is AgentNotFound


@pytest.mark.usefixtures("acme")
@in_one_test(
    ("name", "reason"),
    [("bad", "no licence"), ("gone", "acme_gone"), ("empty", "Nothing")],
)
def test_a_broken_plugin_hurts_only_those_who_use_it(name: str, reason: str) -> None:
    registry = Registry("tests.adapters", BUILT_IN)
    assert len([*registry]) == 6
    with pytest.raises(ConfigurationFailed, match=f"of the package 'acme'.*{reason}"):
        registry[name]


@pytest.mark.usefixtures("acme")
def test_a_plugin_whose_name_is_taken_is_named(caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry("tests.adapters", BUILT_IN)

    assert [(entry.name, entry.origin) for entry in registry.clashes()] == [("mine", "acme")]
    assert caplog.messages == [
        "The package 'acme' names a adapter 'mine', and so does 'copilot-runtime': "
        "that of 'copilot-runtime' is used."
    ]


@pytest.mark.usefixtures("acme")
def test_of_two_plugins_with_one_name_the_first_package_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "other"
    info = folder / "zeta-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zeta\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tests.adapters]\ngood = zeta:Adapter\n")
    monkeypatch.syspath_prepend(str(folder))
    registry = Registry("tests.adapters", BUILT_IN)

    assert registry.entries["good"].origin == "acme"
    assert "so does 'acme'" in caplog.text


@in_one_test(
    ("origin", "command"),
    [
        (None, "pip install 'copilot-runtime[mcp]'"),
        (
            {"url": "file:///srv/my%20code", "dir_info": {"editable": True}},
            "pip install -e '/srv/my code[mcp]'",
        ),
        ({"url": "file:///srv/code", "dir_info": {}}, "pip install '/srv/code[mcp]'"),
        (
            {"url": "https://git.example/c", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'copilot-runtime[mcp] @ git+https://git.example/c@abc'",
        ),
        (
            {
                "url": "https://git.example/c",
                "subdirectory": "python",
                "vcs_info": {"vcs": "git", "commit_id": "abc", "requested_revision": "v1"},
            },
            "pip install 'copilot-runtime[mcp] @ git+https://git.example/c@v1#subdirectory=python'",
        ),
        (
            {"url": "https://files.example/c.whl", "archive_info": {}},
            "pip install 'copilot-runtime[mcp] @ https://files.example/c.whl'",
        ),
    ],
)
def test_an_extra_comes_from_where_the_package_came(
    origin: dict[str, Any] | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "copilot_runtime-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: copilot-runtime\nVersion: 9\n")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(str(tmp_path))

    assert install_command("mcp") == command


@in_one_test("address", ["acme:/tmp/x", "acme:///tmp/x"])
def test_a_store_that_is_chosen_by_its_name_gets_the_address_behind_it(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[copilot_runtime.threads]\nacme = builtins:str\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert cast("Any", build_store(address)) == "/tmp/x"
