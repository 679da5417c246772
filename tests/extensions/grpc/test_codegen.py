"""`copilot-runtime develop codegen`: stubs, a service that is served as it was made, and tools."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc.aio import AioRpcError
from typer.testing import CliRunner

from copilot_runtime.api import ActionContext
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.grpc.codegen import Generation, generate
from copilot_runtime.extensions.tools.catalog import ToolCatalog
from tests.extensions.grpc.servers import SECRET, build_settings, serve
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

PROTO = """syntax = "proto3";
package shop.v1;
import "google/protobuf/empty.proto";

// Sells "things".
service BookShop {
  // Finds products by words.
  rpc FindProducts(FindRequest) returns (FindRequest.Answer);
  // Follows prices.
  rpc WatchPrices(google.protobuf.Empty) returns (stream Price);
  rpc Upload(stream Price) returns (Price);
}
message FindRequest {
  // What to look for.
  string words = 1;
  message Answer { repeated string names = 1; }
}
message Price { double amount = 1; }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "book_shop.proto").write_text(PROTO)
    monkeypatch.syspath_prepend(str(tmp_path / "made"))
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:
        if name.startswith("book_shop"):
            del sys.modules[name]


def make(folder: Path, **more: Any) -> list[str]:
    wanted = Generation(protos=[folder / "book_shop.proto"], out=folder / "made", **more)
    return [line.replace(str(folder), "") for line in generate(wanted)]


def test_stubs_are_generated(folder: Path) -> None:
    assert make(folder) == [
        "wrote   /made/book_shop_pb2.py",
        "wrote   /made/book_shop_pb2.pyi",
        "wrote   /made/book_shop_pb2_grpc.py",
    ]


@in_one_test("option", ["--service", "--tools"])
def test_a_method_that_takes_a_stream_is_named_as_left_out(folder: Path, option: str) -> None:
    proto = str(folder / "book_shop.proto")
    done = CliRunner().invoke(
        cli, ["develop", "codegen", proto, "--out", str(folder / "made"), option]
    )

    assert done.stderr == (
        "left out shop.v1.BookShop.Upload: it takes a stream, and a call has one message\n"
    )


async def test_a_generated_service_can_be_served(folder: Path) -> None:
    make(folder, service=True)
    from book_shop_pb2 import FindRequest  # type: ignore[import-not-found]
    from book_shop_pb2_grpc import BookShopStub  # type: ignore[import-not-found]

    settings = build_settings("book_shop_service:BookShopService", roles=["operator"])
    async with serve(settings) as served, served.connect() as channel:
        with pytest.raises(AioRpcError) as caught:
            await BookShopStub(channel).FindProducts(FindRequest(words="a"))

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert caught.value.details() == "This method is not there yet."


def test_methods_may_be_called_as_words_of_python_or_functions_of_every_service(
    folder: Path,
) -> None:
    methods = "rpc Import(A) returns (A); rpc ListMethods(A) returns (A);"
    proto = folder / "market.proto"
    proto.write_text('syntax = "proto3"; message A {} service Market {' + methods + "}")
    assert [*generate(Generation(protos=[proto], out=folder / "made", service=True))]
    from market_service import MarketService  # type: ignore[import-not-found]

    service: Any = MarketService(None)
    assert [*service.list_methods()] == ["Import", "ListMethods"]


@in_one_test(("place", "out"), [("book_shop_service", "."), ("made/book_shop_service.py", "made")])
def test_a_service_is_found_in_the_folder_where_the_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, out: str
) -> None:
    (tmp_path / "book_shop.proto").write_text(PROTO)
    monkeypatch.chdir(tmp_path)
    list(generate(Generation(protos=[Path("book_shop.proto")], out=Path(out), service=True)))
    assert (
        f'services: ["{place}:BookShopService"]'
        in (tmp_path / out / "book_shop_service.py").read_text()
    )
    code = (
        "from copilot_runtime.extensions.grpc.server import build_rpc_services\n"
        f"[one] = build_rpc_services([{place!r} + ':BookShopService'], None)\n"
        "print(one.descriptor.full_name)"
    )
    # -P: a script of an installed command has not its folder among those that are searched
    done = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True)
    assert done.stdout.decode().strip() == "shop.v1.BookShop"


async def test_generated_tools_can_be_loaded(folder: Path) -> None:
    make(folder, tools=True)
    catalog = ToolCatalog(folder / "made" / "tools.yml")
    catalog.load()

    assert [*catalog.definitions] == ["find_products", "watch_prices"]
    assert catalog.definitions["find_products"].purpose.strip() == "Finds products by words."


@pytest.mark.parametrize(("has_token", "error"), [(False, "Sign in"), (True, "is not there yet")])
async def test_a_generated_tool_calls_a_generated_service(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: str, *, has_token: bool
) -> None:
    make(folder, service=True, tools=True)
    monkeypatch.setenv("SERVICE_SECRET", SECRET)
    settings = build_settings("book_shop_service:BookShopService", roles=["operator"])
    async with serve(settings) as served:
        file = folder / "made" / "tools.yml"
        text = file.read_text().replace("grpc://127.0.0.1:50051", served.server.address)
        file.write_text(text.replace("# token", "token") if has_token else text)
        catalog = ToolCatalog(file)
        catalog.load()
        context = ActionContext(
            thread_id="t", run_id="r", call_id="c", properties={}, headers={}, user="ann"
        )
        result = await catalog.call("find_products", '{"words": "a"}', context)
        await catalog.aclose()

    assert error in (result.error or "")
    assert result.hint == (
        None
        if has_token
        else "No token was sent. Write services: {shop.v1: {token: {service: tools, form: bound}}} "
        "into the file of tools; SERVICE_SECRET signs it."
    )


def test_files_that_users_may_have_changed_are_not_overwritten(folder: Path) -> None:
    make(folder, service=True)
    file = folder / "made" / "book_shop_service.py"
    file.write_text("mine")

    assert f"kept    /made/{file.name}: --force writes it anew" in make(folder, service=True)
    assert file.read_text() == "mine"
    assert f"wrote   /made/{file.name}" in make(folder, service=True, force=True)
    assert "class BookShopService" in file.read_text()


def test_generated_code_passes_the_checks(folder: Path) -> None:
    make(folder, service=True)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "compileall", "-q", "-f", str(folder / "made")]
    )
    assert done.returncode == 0


@in_one_test(
    ("name", "text", "words"),
    [
        ("none.proto", None, "There is no"),
        ("my-shop.proto", PROTO, "makes no module of Python"),
        ("broken.proto", "message {", "protoc refuses this"),
        ("empty.proto", 'syntax = "proto3";', "No method of these files can be a tool"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, name: str, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigurationFailed, match=words):
        list(generate(Generation(protos=[tmp_path / name], out=tmp_path, tools=True)))


def test_our_own_messages_are_those_of_our_protos(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    protos = sorted((root / "copilot_runtime/extensions/grpc/protos").glob("*.proto"))
    ends = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi")]
    files = [str(one.relative_to(root)) for one in protos]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", *ends, *files]
    subprocess.run(command, cwd=root, check=True)

    made = sorted(one for one in tmp_path.rglob("*_pb2*"))
    assert len(made) == 2 * len(protos) == 20
    for one in made:
        kept = root / one.relative_to(tmp_path)
        assert kept.read_text() == one.read_text(), f"{kept.name} is old: make protos"
