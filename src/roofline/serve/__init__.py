"""The live server: a page for every run below some folders, reachable from this machine only.

    /                    the runs                      /index.json
    /run/ID              the page of one               /run/ID.json           the report, byte for byte
    /compare/A/B         two on one chart              /compare/A/B.json      what `roofline compare --json` writes
    /run/ID/state.json   the progress of reading       /events/…              server-sent events: reload the page
    /run/ID/cancel       (POST) cancel reading         /run/ID/retry          (POST) clear a failure

Ids are digests that only the list of runs can map to paths. Runs are read and analyzed in separate processes (`jobs`), so the event loop
here only sends bytes.
"""

import asyncio
import re
import secrets
import shlex
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from ..errors import clean
from ..render.export import to_json
from ..render.page.html import Live, live_policy, page
from ..render.page.report_page import catalogue
from ..units import parse
from .guard import Guard
from .jobs import CHANGED, Answer, CompareReports, Job, Jobs, Limits, ReadRun, comparison_key
from .pages import assets, error_page, index_page, tag_of, waiting_page
from .runs import Listing, Run, RunFinder

INDEX_SCHEMA = "roofline.index/1"
SCAN_EVERY_S = 1.0
REST = 5  # pause before the next scan, in durations of the last one: scanning very many files must not occupy the machine
PATIENCE_S = 0.5  # a page waits this long for its report before it shows the progress
RETRY_MS = 1500  # browsers reconnect for events after this time
NANOSECOND = parse("1 ns", "s")
_ID = re.compile(r"[0-9a-f]{16}\Z")


class Site:
    """The pages of one server: the list of runs, their reports, and the answers to requests."""

    def __init__(self, finder: RunFinder, jobs: Jobs) -> None:
        self._finder, self._jobs = finder, jobs
        self._title = ", ".join(root.name or str(root) for root in finder.roots[:3]) + (" …" if len(finder.roots) > 3 else "")
        self._listing: Listing | None = None
        self._by_id: dict[str, Run] = {}
        self._scanning: asyncio.Task[None] | None = None
        self._look_at = 0.0

    def routes(self) -> list[Route]:
        return [
            Route("/", self.index),
            Route("/index.json", self.index_json),
            Route("/run/{id}.json", self.run_json),
            Route("/run/{id}", self.run),
            Route("/run/{id}/state.json", self.run_state),
            Route("/run/{id}/{action}", self.run_action, methods=["POST"]),
            Route("/compare/{a}/{b}.json", self.compare_json),
            Route("/compare/{a}/{b}", self.compare),
            Route("/compare/{a}/{b}/state.json", self.compare_state),
            Route("/compare/{a}/{b}/{action}", self.compare_action, methods=["POST"]),
            Route("/events/{ids:path}", self.events),
            Route("/static/{name}", self.static),
            Route("/favicon.ico", self.icon),
        ]

    async def index(self, request: Request) -> Response:
        return HTMLResponse(index_page(self._title))

    async def index_json(self, request: Request) -> Response:
        listing = await self._runs()
        return _json(
            request,
            to_json(
                {
                    "schema": INDEX_SCHEMA,
                    "roots": [clean(str(root)) for root in self._finder.roots],
                    "runs": [self._row(run) for run in listing.runs],
                    "notes": [clean(note) for note in listing.notes],
                }
            ),
        )

    async def run(self, request: Request) -> Response:
        run = await self._run(request.path_params["id"])
        job = self._jobs.report(run)
        await job.settled(PATIENCE_S)
        events = f"/events/{run.id}?version={run.version}"
        if job.error is not None:
            return _failed(run.name, job.error, events=events, retry=f"/run/{run.id}/retry", command=_remedy(run, job.error))
        if job.answer is None:
            return HTMLResponse(waiting_page(run.name, progress=job.progress, address=f"/run/{run.id}"))
        return await _page(run.name, f"/run/{run.id}.json", events, job.answer)

    async def run_json(self, request: Request) -> Response:
        while True:
            job = self._jobs.report(await self._run(request.path_params["id"]))
            await job.settled()
            if job.error != CHANGED:
                return _answer(request, job)

    async def run_state(self, request: Request) -> Response:
        run = await self._run(request.path_params["id"])
        return _json(request, to_json({**_state(self._jobs.known(run.version)), "version": run.version}))

    async def run_action(self, request: Request) -> Response:
        run = await self._run(request.path_params["id"])
        return self._cancel_or_retry(request, run.version)

    async def compare(self, request: Request) -> Response:
        before, after = await self._pair(request)
        job = self._jobs.comparison(before, after)
        await job.settled(PATIENCE_S)
        title = f"{before.name} → {after.name}"
        where = f"/compare/{before.id}/{after.id}"
        events = f"/events/{before.id}/{after.id}?version={comparison_key(before, after)}"
        if job.error is not None:
            return _failed(title, job.error, events=events, retry=f"{where}/retry")
        if job.answer is None:
            return HTMLResponse(waiting_page(title, progress=job.progress, address=where))
        old, new = (part.answer for part in job.parts)
        assert old is not None
        assert new is not None
        return await _page(title, f"{where}.json", events, new, before=old, comparison=job.answer)

    async def compare_json(self, request: Request) -> Response:
        while True:
            job = self._jobs.comparison(*await self._pair(request))
            await job.settled()
            if job.error != CHANGED:
                return _answer(request, job)

    async def compare_state(self, request: Request) -> Response:
        return _json(request, to_json(_state(self._jobs.known(comparison_key(*await self._pair(request))))))

    async def compare_action(self, request: Request) -> Response:
        before, after = await self._pair(request)
        return self._cancel_or_retry(request, comparison_key(before, after), before.version, after.version)

    async def events(self, request: Request) -> Response:
        """One message if the run is no longer at the version in the address, else none; browsers reconnect by themselves.

        The stream ends at once: an open stream per page would use up the few connections that a browser makes to a server.
        """
        await self._runs()
        ids = request.path_params["ids"].split("/")
        versions = [run.version if (run := self._known(id)) else "gone" for id in ids]
        message = "" if ".".join(versions) == request.query_params.get("version") else "data: changed\n\n"
        return Response(f"retry: {RETRY_MS}\n\n{message}", media_type="text/event-stream")

    async def static(self, request: Request) -> Response:
        asset = assets().get(request.path_params["name"])
        if asset is None:
            raise HTTPException(404, "no such file")
        return _tagged(request, asset.body, asset.type, asset.tag)

    async def icon(self, request: Request) -> Response:
        icon = assets()["live_icon.svg"]
        return _tagged(request, icon.body, icon.type, icon.tag)

    async def error(self, request: Request, error: Exception) -> Response:
        """The answer to an unknown address, as a page or as JSON like the request."""
        status, words = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "internal error of the server")
        if request.url.path.endswith(".json"):
            return _json(request, to_json({"error": words}), status=status)
        return HTMLResponse(error_page("roofline", words), status_code=status)

    async def _runs(self) -> Listing:
        """The runs of the last scan; a new scan begins if that is some time ago, and only the very first one is waited for."""
        if self._scanning is None and time.monotonic() >= self._look_at:
            self._scanning = asyncio.create_task(self._scan())
        if self._listing is None and self._scanning is not None:
            await self._scanning
        assert self._listing is not None
        return self._listing

    async def _scan(self) -> None:
        began = time.monotonic()
        try:
            self._listing = await run_in_threadpool(self._finder.find)
            self._by_id = {run.id: run for run in self._listing.runs}
        finally:
            now = time.monotonic()
            self._look_at = now + max(SCAN_EVERY_S, REST * (now - began))
            self._scanning = None

    def _known(self, id: str) -> Run | None:
        run = self._by_id.get(id)
        return self._finder.refreshed(run) if run else None

    async def _run(self, id: str) -> Run:
        """The run with this id, with the current state of its files."""
        if not _ID.match(id):
            raise HTTPException(404, "no such run")
        await self._runs()
        if id not in self._by_id and self._scanning is not None:
            await asyncio.wait({self._scanning})  # the run may be new
        if id not in self._by_id:
            raise HTTPException(404, "no such run; reload the list of runs")
        run = self._known(id)
        if run is None:
            raise HTTPException(410, f"{self._by_id[id].name}: its file no longer exists; reload the list of runs")
        return run

    async def _pair(self, request: Request) -> tuple[Run, Run]:
        return await self._run(request.path_params["a"]), await self._run(request.path_params["b"])

    def _cancel_or_retry(self, request: Request, *keys: str) -> Response:
        """Cancel some jobs, or clear their failures."""
        action = request.path_params["action"]
        if action not in ("cancel", "retry"):
            raise HTTPException(404, "no such page")
        for key in keys:
            if action == "retry":
                self._jobs.forget_failure(key)
            elif job := self._jobs.known(key):
                job.cancel()
        return Response(status_code=204)

    def _row(self, run: Run) -> dict[str, Any]:
        summary = self._jobs.summary(run.version)
        state = _state(self._jobs.known(run.version))
        return {
            "id": run.id,
            "name": clean(run.name),
            "path": clean(str(run.path)),
            "kind": run.kind,
            "files": len(run.files),
            "bytes": run.bytes,
            "modified_s": run.modified_ns * NANOSECOND,
            "state": state["state"],
            "error": state["error"],
            "summary": {key: clean(value) if isinstance(value, str) else value for key, value in summary.items()} or None,
            "page": f"/run/{run.id}",
            "json": f"/run/{run.id}.json",
        }


def application(
    roots: Sequence[Path | str],
    *,
    read_run: ReadRun,
    compare_reports: CompareReports,
    port: int,
    workers: int = 1,
    limits: Limits | None = None,
    follow: bool = False,
    token: str | None = None,
) -> Guard:
    """The guarded ASGI application for some files and folders."""
    jobs = Jobs(read_run, compare_reports, workers=workers, limits=limits)
    site = Site(RunFinder(roots, follow=follow), jobs)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await jobs.close()

    app = Starlette(routes=site.routes(), lifespan=lifespan, exception_handlers={HTTPException: site.error, Exception: site.error})
    return Guard(app, port, token)


def _state(job: Job | None) -> dict[str, object]:
    """The state of a job; ``listed`` if it was not requested yet."""
    if job is None:
        return {"state": "listed", "progress": None, "error": None}
    return {"state": job.state, "progress": job.progress, "error": job.error}


def _failed(title: str, error: str, **links: str) -> Response:
    return HTMLResponse(error_page(title, error, **links), status_code=422)


async def _page(
    title: str, twin: str, events: str, report: Answer, *, before: Answer | None = None, comparison: Answer | None = None
) -> Response:
    nonce = secrets.token_urlsafe(16)
    live = Live(nonce=nonce, twin=twin, events=events)

    def written() -> bytes:
        words = (comparison or report).words
        old, change = (answer.for_page if answer else None for answer in (before, comparison))
        return page(report.for_page, words=words, title=title, before=old, comparison=change, catalogue=catalogue(), live=live).encode()

    return HTMLResponse(await run_in_threadpool(written), headers={"content-security-policy": live_policy(nonce)})


def _remedy(run: Run, error: str) -> str:
    """The command that reads what is intact of a damaged run, which the server does not."""
    return f"roofline analyze {shlex.quote(str(run.path))} --read salvage -o report.html" if "--read salvage" in error else ""


def _answer(request: Request, job: Job) -> Response:
    return _json(request, job.answer.body) if job.answer else _json(request, to_json({"error": job.error}), status=422)


def _json(request: Request, body: bytes, *, status: int = 200) -> Response:
    return _tagged(request, body, "application/json", tag_of(body), status=status)


def _tagged(request: Request, body: bytes, kind: str, tag: str, *, status: int = 200) -> Response:
    """A body with its entity tag, or "not modified". Browsers may cache it, but must revalidate it each time."""
    headers = {"etag": tag, "cache-control": "no-cache"}
    if status == 200 and tag in [known.strip().removeprefix("W/") for known in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(body, status_code=status, media_type=kind, headers=headers)
