"""The guard: the token of the address, and requests that another site makes a browser send."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from every import every
from live import client
from own_thread import in_own_thread
from roofline.cli import main
from roofline.cli.served_runs import compare_reports, read_run
from roofline.serve import application, listen
from roofline.serve.guard import new_token

TOKEN = "a" * 48
CROSS_SITE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
BROWSER = {"accept": "text/html,*/*"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "secret.csv").write_text("name,time,flops,bytes\nmatmul,2 ms,1 GFLOP,10 MB\n")
    with client(folder, token=TOKEN) as made:
        yield made


@pytest.fixture(scope="module")
def without_token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with client(tmp_path_factory.mktemp("open")) as made:
        yield made


@pytest.fixture(autouse=True)
def forget(server: httpx.Client) -> None:
    server.cookies.clear()


@every("path", ["/", "/index.json", "/static/live.css", "/favicon.ico", "/events/x", "/nowhere"])
@every("given", ["", "b" * 48, TOKEN[:-1], TOKEN + "a", "ä"])
def test_nothing_is_shown_without_the_token(server: httpx.Client, path: str, given: str) -> None:
    answers = [
        server.get(path, params={"token": given}),
        server.get(path, headers={"authorization": f"token {given}".strip().encode()}),
        server.get(path, headers={"cookie": f"roofline-{server.base_url.port}={given}".encode()}),
    ]
    assert [answer.status_code for answer in answers] == [403, 403, 403]
    assert not any("secret" in answer.text for answer in answers)
    assert "the address with the token" in answers[0].text


@every("scheme", ["token", "Bearer"])
def test_scripts_send_the_token_along(server: httpx.Client, scheme: str) -> None:
    assert "secret.csv" in server.get("/index.json", params={"token": TOKEN}).text
    assert "secret.csv" in server.get("/index.json", headers={"authorization": f"{scheme} {TOKEN}"}).text
    assert "set-cookie" not in server.get("/index.json", params={"token": TOKEN}).headers


def test_a_browser_gets_a_cookie_and_an_address_without_the_token(server: httpx.Client) -> None:
    answer = server.get("/run/x", params={"token": TOKEN, "tab": '"><script>'}, headers=BROWSER)
    assert (answer.status_code, "<script>" in answer.text, TOKEN in answer.text) == (200, False, False)
    assert "0;url=/run/x?tab=%22%3E%3Cscript%3E" in answer.text
    cookie = answer.headers["set-cookie"]
    assert {*cookie.lower().split("; ")} == {f"roofline-{server.base_url.port}={TOKEN}", "path=/", "httponly", "samesite=strict"}
    assert "secret.csv" in server.get("/index.json").text  # the client keeps cookies, as browsers do


def test_the_way_in_leads_to_no_other_host(server: httpx.Client) -> None:
    answer = server.get(f"http://127.0.0.1:{server.base_url.port}//evil.example/?token={TOKEN}", headers=BROWSER)
    assert 'url=/evil.example/"' in answer.text


@every("site", ["cross-site", "same-site", "CROSS-SITE", "anything"])
def test_what_another_site_makes_a_browser_ask_is_refused(server: httpx.Client, without_token: httpx.Client, site: str) -> None:
    # same-site is another port of this machine.
    headers = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
    assert without_token.get("/index.json", headers=headers).status_code == 403
    assert server.get("/index.json", headers={**headers, "authorization": f"token {TOKEN}"}).status_code == 403
    assert without_token.get("/", headers={**CROSS_SITE, "sec-fetch-site": site}).status_code == 403
    framed = {**CROSS_SITE, "sec-fetch-site": site, "sec-fetch-dest": "iframe"}
    assert server.get("/", params={"token": TOKEN}, headers=framed).status_code == 403


def test_a_link_elsewhere_with_the_whole_address_is_opened(server: httpx.Client) -> None:
    assert "set-cookie" in server.get("/", params={"token": TOKEN}, headers={**BROWSER, **CROSS_SITE}).headers
    assert server.get("/", headers={**BROWSER, **CROSS_SITE}).status_code == 403


def test_a_ticket_is_good_once(tmp_path: Path) -> None:
    guard = application([tmp_path], read_run=read_run, compare_reports=compare_reports, port=80, token=TOKEN)
    ticket = guard.ticket()

    async def ask() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://127.0.0.1") as browser:  # type: ignore[arg-type]
            first = await browser.get("/", params={"token": ticket}, headers=BROWSER)
            with_cookie = await browser.get("/")
            browser.cookies.clear()
            again = await browser.get("/", params={"token": ticket}, headers=BROWSER)
            return [answer.status_code for answer in (first, with_cookie, again)]

    assert in_own_thread(lambda: asyncio.run(ask())) == [200, 200, 403]


def test_tokens_differ() -> None:
    assert len({new_token() for _ in range(100)}) == 100
    assert len(new_token()) == 48


@pytest.mark.parametrize("words", [[], ["--no-token"]])
def test_the_address_holds_a_token_unless_none_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    def once(app: object, on: object) -> None:
        on.close()  # type: ignore[attr-defined]

    monkeypatch.setattr(listen, "listen", once)
    assert main(["serve", str(tmp_path), "--port", "0", *words]) == 0
    assert ("?token=" in capsys.readouterr().err) == (words == [])
