"""A Hugging Face Hub on the loopback, for tests: real clients in, no network out.

It serves what `huggingface_hub` and `datasets` ask for when they create a repo, upload, commit, list, tag,
download and stream. Everything is in memory and goes when the hub closes. A commit is applied whole or not at
all, and its sha follows from the repo, the history and the content, so that it is the same in every run.

    with FakeHub(faults=[Fault("/commit/", action=503)]) as hub:
        hub.put("dataset", "org/name", {"data/train.jsonl": b'{"a": 1}'})
        subprocess.run([...], env={**os.environ, **hub.environment()})

Both clients read `HF_ENDPOINT` and `HF_HUB_DISABLE_XET` when they are imported: run them in a subprocess with
`environment()`, or pass `endpoint=` to them and set `huggingface_hub.constants.HF_HUB_DISABLE_XET`.

Not covered: Xet storage, redirects to a CDN, pull requests, gated repos, deleting repos and refs, `.gitignore`,
the `.gitattributes` that the real Hub puts into a new repo, listings of more than one page, searching, and
dates (every commit bears the same one).
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from kernelmill.errors import ConfigError
from kernelmill.testing.fake_hub_http import Answer, Handler, answer_range
from kernelmill.testing.fake_hub_repo import KINDS, Commit, Refusal, Repo, Store, file_oid, is_lfs

__all__ = ["STRANGER_TOKEN", "TOKEN", "Commit", "FakeHub", "Fault"]

TOKEN = "hf_loopback_owner"  # sees and writes everything
STRANGER_TOKEN = "hf_loopback_stranger"  # valid, but sees public repos only and writes nothing
# The client interprets any other 401 as a missing repo.
BAD_TOKEN = "Invalid credentials in Authorization header"
NO_TOKEN = "Invalid username or password."


@dataclass(frozen=True)
class Fault:
    """One scripted fault: of the requests that match, let `skip` pass, then spoil `times`.

    `path` is a regular expression searched in the decoded path, without the query; `method` `*` means any.
    `action` is an HTTP error status to answer (with `retry_after` as its Retry-After header), or
    `drop`: a write is not applied, and the connection closes in the middle of the response body;
    `lose`: the same, but the write is applied, so the client cannot know;
    `hang`: no response for `seconds`, then the request is served, if the client is still connected.
    """

    path: str
    method: str = "*"
    times: int = 1
    action: int | Literal["drop", "lose", "hang"] = 503
    retry_after: int | None = None
    seconds: float = 0.0
    skip: int = 0

    def __post_init__(self) -> None:
        if self.action not in ("drop", "lose", "hang") and self.action not in range(400, 600):
            raise ValueError(f"action must be 400 to 599, drop, lose or hang, not {self.action!r}")


class FakeHub:
    """The hub. It serves between `__enter__` and `__exit__`; `put` also works before that.

    `requests` lists the (method, decoded path) of all requests in order of arrival, spoiled ones included.
    `faults` may be added at any time; the first one that applies spoils the request.
    """

    token = TOKEN

    def __init__(self, faults: Iterable[Fault] = (), *, port: int = 0) -> None:
        self.faults = list(faults)
        self.requests: list[tuple[str, str]] = []
        self._matched: Counter[int] = Counter()
        self._store = Store()
        self._port = port
        self._lock = threading.RLock()  # held while a request takes effect, which makes commits atomic
        self._closing = threading.Event()

    def __enter__(self) -> FakeHub:
        try:
            self._server = _Server(("127.0.0.1", self._port), _Handler)
        except OSError as error:
            raise ConfigError(f"cannot serve on 127.0.0.1:{self._port}: {error.strerror}") from error
        self._server.hub, self._port = self, self._server.server_address[1]
        self._home = tempfile.TemporaryDirectory(prefix="fake-hub-")
        # With the default poll interval, every close would wait half a second.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="fake-hub")
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.set()
        self._server.shutdown()
        for connection in self._server.connections:
            with contextlib.suppress(OSError):  # most of them have ended already
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()  # waits for the threads of all connections
        self._thread.join()
        self._home.cleanup()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def environment(self) -> dict[str, str]:
        """Return variables that point a subprocess's clients to this hub, with temporary caches."""
        home = self._home.name
        aim = {"HF_ENDPOINT": self.endpoint, "HF_TOKEN": TOKEN, "HF_HOME": home}
        # If the caller has set these, they would override HF_HOME, or keep the clients offline.
        caches = {"HF_HUB_CACHE": f"{home}/hub", "HF_DATASETS_CACHE": f"{home}/datasets"}
        online = {"HF_HUB_OFFLINE": "0", "HF_DATASETS_OFFLINE": "0"}
        online.update(NO_PROXY="127.0.0.1", no_proxy="127.0.0.1")
        return {**aim, **caches, **online, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}

    def put(
        self,
        kind: str,
        repo_id: str,
        files: Mapping[str, bytes],
        private: bool = False,
        message: str = "Seed",
    ) -> str:
        """Add one commit to main that writes `files` over the existing ones, and return its sha.

        The first commit creates the repo; `private` counts only then.
        """
        with self._lock:
            return self._store.put(kind, repo_id, files, private, message)

    def commits(self, kind: str, repo_id: str, revision: str = "main") -> list[Commit]:
        """Return the history of a revision, oldest first. KeyError if there is no such repo or revision."""
        with self._lock:
            try:
                return list(self._store.repos[kind, repo_id].find(revision).history())[::-1]
            except Refusal as refusal:
                raise KeyError(revision) from refusal

    def files(self, kind: str, repo_id: str, revision: str = "main") -> dict[str, bytes]:
        """Return the files of the repo at a revision. KeyError if there is no such repo or revision."""
        return dict(self.commits(kind, repo_id, revision)[-1].files)

    def _arrived(self, method: str, path: str) -> Fault | None:
        with self._lock:
            self.requests.append((method, path))
            for index, fault in enumerate(self.faults):
                if fault.method in ("*", method) and re.search(fault.path, path):
                    self._matched[index] += 1
                    if fault.skip < self._matched[index] <= fault.skip + fault.times:
                        return fault
        return None


class _Server(ThreadingHTTPServer):
    hub: FakeHub
    daemon_threads = False  # so that closing waits for them
    request_queue_size = 64

    def __init__(self, *args: Any) -> None:
        self.connections: list[Any] = []
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client that hangs up is no error of ours
            super().handle_error(request, client_address)


def _refuse(refusal: Refusal) -> Answer:
    # A path in the message may contain characters that a header cannot.
    headers = {"X-Error-Message": ascii(refusal.message)[1:-1]}
    if refusal.code:
        headers["X-Error-Code"] = refusal.code
    return Answer({"error": refusal.message}, refusal.status, headers)


class _Handler(Handler):
    server: _Server

    def _serve(self) -> None:
        self.hub, self.url, self.body = self.server.hub, urlsplit(self.path), self.read_body()
        fault = self.hub._arrived(self.command, unquote(self.url.path))
        action = fault.action if fault else None
        if fault and action == "hang":
            closing = self.hub._closing.wait(fault.seconds)
            readable, _, _ = select.select([self.connection], [], [], 0)
            if closing or (readable and not self.connection.recv(1, socket.MSG_PEEK)):  # the client gave up
                self.close_connection = True
                return
        if fault and isinstance(action, int):
            answer = _refuse(Refusal(action, BAD_TOKEN if action == 401 else f"scripted fault {action}"))
            if fault.retry_after is not None:
                answer.headers["Retry-After"] = str(fault.retry_after)
        elif action == "drop" and self.command not in ("GET", "HEAD"):
            answer = Answer({"dropped": True})
        else:
            with self.hub._lock:
                try:
                    answer = self._route([unquote(part) for part in self.url.path.split("/")[1:]])
                except Refusal as refusal:
                    answer = _refuse(refusal)
        self.send_answer(answer, cut=action in ("drop", "lose"))

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve

    def _token(self, must_write: bool = False) -> str:
        """Return the request's token, which is valid or empty."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in ("", TOKEN, STRANGER_TOKEN):
            raise Refusal(401, BAD_TOKEN)
        if must_write and token != TOKEN:
            raise Refusal(403, "This token may not write here") if token else Refusal(401, NO_TOKEN)
        return token

    def _repo(self, kind: str, repo_id: str, write: bool = False) -> Repo:
        """Return the repo if the request may see it. To others it is missing, as on the real Hub."""
        token, repo = self._token(), self.hub._store.repos.get((kind, repo_id))
        if repo is None or (repo.private and token != TOKEN):
            raise Refusal(404 if token else 401, "Repository not found", "RepoNotFound")
        self._token(must_write=write)
        return repo

    def _route(self, parts: Sequence[str]) -> Answer:
        match parts:
            case ["api", "whoami-v2"]:
                if not (token := self._token()):
                    raise Refusal(401, NO_TOKEN)
                name, role = ("owner", "write") if token == TOKEN else ("stranger", "read")
                access = {"accessToken": {"displayName": "loopback", "role": role}}
                return Answer({"type": "user", "name": name, "orgs": [], "auth": access})
            case ["api", "validate-yaml"]:
                return Answer({"errors": [], "warnings": []})
            case ["api", "repos", "create"]:
                return self._create(json.loads(self.body))
            case ["api", kinds, *rest] if kinds[:-1] in KINDS:
                # Repos without an org exist on the real Hub, but not here.
                write = self.command not in ("GET", "HEAD") and rest[2:3] != ["paths-info"]
                repo = self._repo(kinds[:-1], "/".join(rest[:2]), write)
                return self._write(repo, rest[2:]) if write else self._look(repo, rest[2:])
            case ["lfs-objects", oid]:  # stands for a signed URL: asks for no token
                self.hub._store.put_lfs(oid, self.body)
                return Answer({})
        kind = parts[0].removesuffix("s") if parts[0] in ("datasets", "spaces") else "model"
        match parts if kind == "model" else parts[1:]:
            case [org, name, "info", "lfs", "objects", "batch" | "verify"]:
                self._repo(kind, f"{org}/{name.removesuffix('.git')}", write=True)
                return self._lfs(json.loads(self.body))
            case [org, name, "resolve", revision, *path]:
                return self._resolve(self._repo(kind, f"{org}/{name}").find(revision), "/".join(path))
        raise self._unserved()

    def _unserved(self) -> Refusal:
        return Refusal(404, f"the fake hub does not serve {self.command} {self.url.path}")

    def _web(self, kind: str, repo_id: str) -> str:
        return f"{self.hub.endpoint}/{'' if kind == 'model' else f'{kind}s/'}{repo_id}"

    def _create(self, wish: dict[str, Any]) -> Answer:
        self._token(must_write=True)
        kind, repo_id = wish.get("type") or "model", f"{wish.get('organization') or 'owner'}/{wish['name']}"
        url = self._web(kind, repo_id)
        if (kind, repo_id) in self.hub._store.repos:  # the client reads the URL from this refusal too
            return Answer({"error": "You already created this repo", "url": url}, 409)
        self.hub.put(kind, repo_id, {}, private=wish.get("visibility") == "private", message="initial commit")
        return Answer({"url": url, "name": repo_id})

    def _lfs(self, wish: dict[str, Any]) -> Answer:
        """Handle an upload batch or, without objects, the check that follows an upload."""
        have, objects = self.hub._store.lfs, []
        if "objects" not in wish and len(have.get(wish["oid"], b"")) != wish["size"]:
            raise Refusal(404, f"no such LFS object: {wish['oid']}")
        verify = {"href": f"{self.hub.endpoint}{self.url.path.removesuffix('batch')}verify"}
        for item in wish.get("objects", []):
            actions = {"upload": {"href": f"{self.hub.endpoint}/lfs-objects/{item['oid']}"}, "verify": verify}
            # An object without actions is already stored: the client does not send it again.
            objects.append({**item, **({} if item["oid"] in have else {"actions": actions})})
        return Answer({"transfer": "basic", "objects": objects})

    def _resolve(self, commit: Commit, path: str) -> Answer:
        data = commit.files.get(path)
        if data is None:
            answer = _refuse(Refusal(404, f"no such file: {path}", "EntryNotFound"))
            answer.headers["X-Repo-Commit"] = commit.sha  # for which the client remembers it
            return answer
        etag = f'"{file_oid(path, data)}"'
        headers = {"ETag": etag, "X-Repo-Commit": commit.sha, "Accept-Ranges": "bytes"}
        if is_lfs(path, len(data)):
            headers.update({"X-Linked-Etag": etag, "X-Linked-Size": str(len(data))})
        if self.headers.get("If-None-Match") == etag:
            return Answer(b"", 304, headers)
        return answer_range(data, self.headers.get("Range", ""), headers)

    def _look(self, repo: Repo, parts: list[str]) -> Answer:
        query = parse_qs(self.url.query)
        match parts:
            case [] | ["revision", _]:
                return Answer(repo.info(parts[1] if parts else "main", blobs="blobs" in query))
            case ["tree", revision, *path]:
                recursive = query.get("recursive", ["false"])[0].lower() in ("true", "1")
                return Answer(repo.tree(revision, "/".join(path).strip("/"), recursive))
            case ["paths-info", revision]:
                found = {entry["path"]: entry for entry in repo.tree(revision, "", recursive=True)}
                wanted = [path.rstrip("/") for path in parse_qs(self.body.decode()).get("paths", [])]
                return Answer([found[path] for path in wanted if path in found])
            case ["refs"]:
                return Answer(repo.refs())
            case ["commits", revision]:
                return Answer(repo.log(revision))
        raise self._unserved()

    def _write(self, repo: Repo, parts: list[str]) -> Answer:
        wish = {} if parts[:1] == ["commit"] else json.loads(self.body or b"{}")
        match self.command, parts:
            case "POST", ["preupload", revision]:
                return Answer({"files": repo.upload_modes(revision, wish["files"])})
            case "POST", ["commit", branch] if "create_pr" not in parse_qs(self.url.query):
                commit = repo.commit(branch, self.body, self.hub._store.lfs)
                url = f"{self._web(repo.kind, repo.id)}/commit/{commit.sha}"
                return Answer({"success": True, "commitOid": commit.sha, "commitUrl": url})
            case "POST", ["branch", name]:
                repo.refer("branch", name, wish.get("startingPoint", "main"))
                return Answer({})
            case "POST", ["tag", revision]:
                repo.refer("tag", wish["tag"], revision)
                return Answer({})
        raise self._unserved()
