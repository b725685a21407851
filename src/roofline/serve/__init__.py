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
from contextlib import asynccontextmanager, suppress
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
from ..sources.runs import Listing, Run, RunFinder
from ..units import parse
from .guard import Guard
from .jobs import CHANGED, Jobs
from .pages import assets, error_page, index_page, tag_of, waiting_page
from .workers import Job, Limits

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
        self._index: tuple[Listing, int, bytes] | None = None

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
        if self._index is None or self._index[:2] != (listing, self._jobs.changes):
            changes = self._jobs.changes
            self._index = (listing, changes, self._index_of(listing))
        return _json(request, self._index[2])

    async def run(self, request: Request) -> Response:
        run = await self._run(request.path_params["id"])
        job = self._jobs.report(run)
        await _settle(job, PATIENCE_S)
        events = f"/events/{run.id}?version={run.version}"
        if not job.outcome.done():
            return HTMLResponse(waiting_page(run.name, progress=job.progress, address=f"/run/{run.id}"))
        if job.error is not None:
            page = error_page(run.name, job.error, events=events, retry=f"/run/{run.id}/retry", command=_remedy(run, job.error))
            return HTMLResponse(page, status_code=422)
        return await self._page(run.name, f"/run/{run.id}.json", events, job.outcome.result().for_page)

    async def run_json(self, request: Request) -> Response:
        return _answer(request, await self._settled(request.path_params["id"]))

    async def run_state(self, request: Request) -> Response:
        run = await self._run(request.path_params["id"])
        return _json(request, to_json({**_state(self._jobs.known(run.version)), "version": run.version}))

    async def run_action(self, request: Request) -> Response:
        run = await self._run(request.path_params["id"])
        return self._cancel_or_retry(request, run.version)

    async def compare(self, request: Request) -> Response:
        before, after = await self._pair(request)
        jobs = (self._jobs.report(before), self._jobs.report(after))
        deadline = time.monotonic() + PATIENCE_S
        for job in jobs:
            await _settle(job, deadline - time.monotonic())
        title = f"{before.name} → {after.name}"
        where = f"{before.id}/{after.id}"
        if wrong := [job.error for job in jobs if job.error is not None]:
            return self._failed_comparison(where, title, wrong[0], before, after)
        both = self._comparison(before, after, jobs)
        if both is not None:
            await _settle(both, deadline - time.monotonic())
        if both is None or not both.outcome.done():
            return HTMLResponse(waiting_page(title, progress=_shared_progress(jobs), address=f"/compare/{where}"))
        if both.error is not None:
            return self._failed_comparison(where, title, both.error, before, after)
        old, new = (job.outcome.result().for_page for job in jobs)
        comparison = both.outcome.result().for_page
        return await self._page(title, f"/compare/{where}.json", _events(before, after), new, before=old, comparison=comparison)

    async def compare_json(self, request: Request) -> Response:
        jobs = (await self._settled(request.path_params["a"]), await self._settled(request.path_params["b"]))
        for job in jobs:
            if job.error is not None:
                return _answer(request, job)
        both = self._comparison(*await self._pair(request), jobs)
        assert both is not None  # both reports are ready
        await _settle(both)
        return _answer(request, both)

    async def compare_state(self, request: Request) -> Response:
        before, after = await self._pair(request)
        jobs = (self._jobs.known(before.version), self._jobs.known(after.version))
        states = [_state(job) for job in (*jobs, self._jobs.known(_comparison_key(before, after)))]
        words = [str(state["state"]) for state in states[:2]]
        # If both reports are ready, only the comparison remains, which begins when the page is requested.
        word = next((word for word in ("failed", "listed", "waiting", "reading") if word in words), str(states[2]["state"]))
        error = next((state["error"] for state in states if state["error"] is not None), None)
        return _json(request, to_json({"state": word, "progress": _shared_progress(jobs), "error": error}))

    async def compare_action(self, request: Request) -> Response:
        before, after = await self._pair(request)
        return self._cancel_or_retry(request, before.version, after.version, _comparison_key(before, after))

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
            listing = await run_in_threadpool(self._finder.find)
            if self._listing is None or listing.version != self._listing.version:
                self._listing = listing
                self._by_id = {run.id: run for run in listing.runs}
        finally:
            now = time.monotonic()
            self._look_at = now + max(SCAN_EVERY_S, REST * (now - began))
            self._scanning = None

    def _known(self, id: str) -> Run | None:
        found = self._by_id.get(id)
        return self._finder.refreshed(found) if found else None

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

    async def _settled(self, id: str) -> Job:
        """The job of a run once it has an outcome; if the file changed meanwhile, the job of its new content."""
        while True:
            job = self._jobs.report(await self._run(id))
            await _settle(job)
            if job.error != CHANGED:
                return job

    def _cancel_or_retry(self, request: Request, *keys: str) -> Response:
        """Cancel some jobs, or clear their failures."""
        actions = {"cancel": self._jobs.cancel, "retry": self._jobs.forget_failure}
        act = actions.get(request.path_params["action"])
        if act is None:
            raise HTTPException(404, "no such page")
        for key in keys:
            act(key)
        return Response(status_code=204)

    def _failed_comparison(self, where: str, title: str, words: str, before: Run, after: Run) -> Response:
        page = error_page(title, words, events=_events(before, after), retry=f"/compare/{where}/retry")
        return HTMLResponse(page, status_code=422)

    async def _pair(self, request: Request) -> tuple[Run, Run]:
        return await self._run(request.path_params["a"]), await self._run(request.path_params["b"])

    def _comparison(self, before: Run, after: Run, jobs: tuple[Job, Job]) -> Job | None:
        """The job that compares two runs, once both have their reports."""
        if any(job.state != "ready" for job in jobs):
            return None
        old, new = (job.outcome.result().body for job in jobs)
        return self._jobs.comparison(_comparison_key(before, after), (clean(str(before.path)), clean(str(after.path))), old, new)

    async def _page(
        self, title: str, twin: str, events: str, report: bytes, *, before: bytes | None = None, comparison: bytes | None = None
    ) -> Response:
        nonce = secrets.token_urlsafe(16)
        live = Live(nonce=nonce, twin=twin, events=events)

        def made() -> bytes:
            return page(report, title=title, before=before, comparison=comparison, catalogue=catalogue(), live=live).encode()

        return HTMLResponse(await run_in_threadpool(made), headers={"content-security-policy": live_policy(nonce)})

    def _index_of(self, listing: Listing) -> bytes:
        """The list of runs as JSON. A run that cannot be encoded is left out and counted."""
        roots, notes = ([clean(str(one)) for one in some] for some in (self._finder.roots, listing.notes))
        try:
            return to_json({"schema": INDEX_SCHEMA, "roots": roots, "runs": [self._row(run) for run in listing.runs], "notes": notes})
        except Exception:
            rows = []
            for run in listing.runs:
                with suppress(Exception):
                    to_json(row := self._row(run))
                    rows.append(row)
            notes.append(f"{len(listing.runs) - len(rows):,} runs cannot be listed")
            return to_json({"schema": INDEX_SCHEMA, "roots": roots, "runs": rows, "notes": notes})

    def _row(self, run: Run) -> dict[str, Any]:
        job, summary = self._jobs.known(run.version), self._jobs.summary(run.version) or {}
        return {
            "id": run.id,
            "name": clean(run.name),
            "path": clean(str(run.path)),
            "kind": run.kind,
            "files": len(run.files),
            "bytes": run.bytes,
            "modified_s": run.modified_ns * NANOSECOND,
            "state": job.state if job else "listed",
            "error": job.error if job else None,
            "summary": {key: clean(value) if isinstance(value, str) else value for key, value in summary.items()} or None,
            "page": f"/run/{run.id}",
            "json": f"/run/{run.id}.json",
        }


def application(
    roots: Sequence[Path | str],
    *,
    worker: Sequence[str],
    port: int,
    workers: int = 1,
    limits: Limits | None = None,
    follow: bool = False,
    token: str | None = None,
) -> Guard:
    """The guarded ASGI application for some files and folders; ``worker`` is the command of worker processes (see `workers`)."""
    jobs = Jobs(worker, workers=workers, limits=limits)
    site = Site(RunFinder(roots, follow=follow), jobs)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(jobs.close)

    app = Starlette(routes=site.routes(), lifespan=lifespan, exception_handlers={HTTPException: site.error, Exception: site.error})
    return Guard(app, port, token)


async def _settle(job: Job, within_s: float | None = None) -> None:
    """Wait for the outcome of a job, up to a limit; the job continues after that."""
    if not job.outcome.done() and (within_s is None or within_s > 0):
        await asyncio.wait({asyncio.wrap_future(job.outcome)}, timeout=within_s)


def _state(job: Job | None) -> dict[str, object]:
    """The state of a job; ``listed`` if it was not requested yet."""
    if job is None:
        return {"state": "listed", "progress": None, "error": None}
    return {"state": job.state, "progress": job.progress, "error": job.error}


def _comparison_key(before: Run, after: Run) -> str:
    """The cache key of the comparison of two runs."""
    return f"{before.version}.{after.version}"


def _remedy(run: Run, error: str) -> str:
    """The command that reads what is intact of a damaged run, which the server does not."""
    return f"roofline analyze {shlex.quote(str(run.path))} --salvage -o report.html" if "--salvage" in error else ""


def _events(before: Run, after: Run) -> str:
    return f"/events/{before.id}/{after.id}?version={_comparison_key(before, after)}"


def _shared_progress(jobs: tuple[Job | None, Job | None]) -> float | None:
    progress = [job.progress if job else None for job in jobs]
    return None if all(one is None for one in progress) else sum(one or 0.0 for one in progress) / len(progress)


def _answer(request: Request, job: Job) -> Response:
    outcome = job.outcome.result()
    return _json(request, outcome.body) if outcome.error is None else _json(request, to_json({"error": outcome.error}), status=422)


def _json(request: Request, body: bytes, *, status: int = 200) -> Response:
    return _tagged(request, body, "application/json", tag_of(body), status=status)


def _tagged(request: Request, body: bytes, kind: str, tag: str, *, status: int = 200) -> Response:
    """A body with its entity tag, or "not modified". Browsers may cache it, but must revalidate it each time."""
    headers = {"etag": tag, "cache-control": "no-cache"}
    if status == 200 and tag in [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(body, status_code=status, media_type=kind, headers=headers)
