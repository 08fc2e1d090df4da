"""The fake hub, asked by the real clients. `huggingface_hub` runs in this process with an explicit endpoint;
`datasets`, which takes its endpoint from the environment at import, runs in subprocesses."""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationCopy,
    CommitOperationDelete,
    HfApi,
    HfFileSystem,
    close_session,
)
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from kernelmill.errors import ConfigError
from kernelmill.testing.fake_hub import STRANGER_TOKEN, FakeHub, Fault

# The client's own LFS upload uses an argument that its HTTP library has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>' to upload raw bytes:DeprecationWarning")

REPO = "org/name"
NOISE = random.Random(0).randbytes(300_000)
RAW = f"/datasets/{REPO}/resolve/main/data/noise.bin"
COMMIT = f"/api/datasets/{REPO}/commit/main"


@pytest.fixture(autouse=True)
def _client_in_this_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    close_session()  # the client is shared, and has read the environment when it was made
    yield
    close_session()


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        yield hub


def api_of(hub: FakeHub, token: str | bool = FakeHub.token) -> HfApi:
    return HfApi(endpoint=hub.endpoint, token=token)


def parquet(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def ask(
    hub: FakeHub, method: str, path: str, body: bytes | None = None, timeout: float = 240, **headers: str
) -> Any:
    """One request without a client library: the answer with its body read as `.data`."""
    connection = http.client.HTTPConnection(hub.endpoint.removeprefix("http://"), timeout=timeout)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"Authorization": f"Bearer {hub.token}", **named})
        answer: Any = connection.getresponse()
        answer.data = answer.read()
        return answer
    finally:
        connection.close()


def run(hub: FakeHub, code: str, **environment: str) -> Any:
    """Run `code` with the hub's environment and return the JSON that it prints last."""
    env = {**os.environ, **hub.environment(), "HF_HUB_DISABLE_PROGRESS_BARS": "1", **environment}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# What goes up comes down.


@pytest.mark.parametrize("kind", ["dataset", "model"])
@pytest.mark.filterwarnings("ignore:It seems that you are about to commit a data file")
def test_a_folder_comes_back_byte_for_byte(hub: FakeHub, tmp_path: Path, kind: str) -> None:
    files = {
        "README.md": b"# About\n",
        "empty.txt": b"",
        "data/train.parquet": parquet([{"a": 1}]),
        "data/deep/er/noise.bin": NOISE,
        "odd names/a b #1 100% \u00e9\u4e16.txt": "\u4e16\n".encode(),
        "crlf.txt": b"a\r\nb\0\xff",
    }
    for name, data in files.items():
        (tmp_path / "up" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "up" / name).write_bytes(data)
    api = api_of(hub)
    assert api.create_repo(REPO, repo_type=kind).repo_id == REPO
    done = api.upload_folder(
        repo_id=REPO, repo_type=kind, folder_path=tmp_path / "up", commit_message="all of it"
    )

    assert hub.files(kind, REPO) == files
    assert [commit.message for commit in hub.commits(kind, REPO)] == ["initial commit", "all of it"]
    assert done.oid == hub.commits(kind, REPO)[-1].sha
    assert ("PUT", f"/lfs-objects/{hashlib.sha256(NOISE).hexdigest()}") in hub.requests
    assert sorted(api.list_repo_files(REPO, repo_type=kind)) == sorted(files)
    down = Path(api.snapshot_download(REPO, repo_type=kind, cache_dir=tmp_path / "cache"))
    assert {str(p.relative_to(down)): p.read_bytes() for p in down.rglob("*") if p.is_file()} == files


def test_the_same_content_again_makes_no_commit_and_sends_no_lfs_object(hub: FakeHub) -> None:
    api = api_of(hub)
    hub.put("dataset", REPO, {"a.txt": b"a", "b.parquet": NOISE})
    for name, data in {"a.txt": b"a", "b.parquet": NOISE}.items():
        api.upload_file(path_or_fileobj=data, path_in_repo=name, repo_id=REPO, repo_type="dataset")
    assert len(hub.commits("dataset", REPO)) == 1
    assert not [path for method, path in hub.requests if method == "PUT" or "/commit/" in path]


def test_one_commit_adds_deletes_and_copies(hub: FakeHub) -> None:
    hub.put("dataset", REPO, {"old.txt": b"old", "dir/1": b"1", "dir/2": b"2", "a.parquet": NOISE, "t": b"t"})
    operations: list[Any] = [
        CommitOperationAdd("new.txt", b"new"),
        CommitOperationAdd("new.parquet", NOISE[::-1]),
        CommitOperationDelete("old.txt"),
        CommitOperationDelete("dir/"),
        CommitOperationCopy("a.parquet", "b.parquet"),
        CommitOperationCopy("t", "u"),
    ]
    api_of(hub).create_commit(REPO, operations, commit_message="many", repo_type="dataset")
    small = {"new.txt": b"new", "t": b"t", "u": b"t"}
    assert hub.files("dataset", REPO) == {
        **small,
        "a.parquet": NOISE,
        "b.parquet": NOISE,
        "new.parquet": NOISE[::-1],
    }
    assert len(hub.commits("dataset", REPO)) == 2


def test_listings_agree_with_what_was_put(hub: FakeHub) -> None:
    sha = hub.put("dataset", REPO, {"README.md": b"hi", "data/a.parquet": NOISE, "data/x/b.jsonl": b"{}"})
    api = api_of(hub)
    top = {entry.path: type(entry).__name__ for entry in api.list_repo_tree(REPO, repo_type="dataset")}
    assert top == {"README.md": "RepoFile", "data": "RepoFolder"}
    deep = [e.path for e in api.list_repo_tree(REPO, "data", recursive=True, repo_type="dataset")]
    assert sorted(deep) == ["data/a.parquet", "data/x", "data/x/b.jsonl"]
    found: list[Any] = api.get_paths_info(REPO, ["data/a.parquet", "nowhere", "data/x"], repo_type="dataset")
    large, folder = found
    assert (large.size, large.lfs.sha256) == (len(NOISE), hashlib.sha256(NOISE).hexdigest())
    assert folder.path == "data/x"
    info = api.dataset_info(REPO, files_metadata=True)
    assert (info.id, info.sha, info.private) == (REPO, sha, False)
    assert {s.rfilename: s.size for s in info.siblings or []}["data/a.parquet"] == len(NOISE)
    assert api.whoami()["name"] == "owner"
    with pytest.raises(EntryNotFoundError):
        list(api.list_repo_tree(REPO, "nowhere", repo_type="dataset"))


def test_a_repo_can_be_created_once_unless_that_is_said_to_be_fine(hub: FakeHub) -> None:
    api = api_of(hub)
    api.create_repo(REPO, repo_type="dataset")
    assert api.create_repo(REPO, repo_type="dataset", exist_ok=True).repo_id == REPO
    with pytest.raises(HfHubHTTPError, match="already created"):
        api.create_repo(REPO, repo_type="dataset")
    assert api.create_repo("mine").repo_id == "owner/mine"


def test_a_cached_file_is_not_sent_again(hub: FakeHub, tmp_path: Path) -> None:
    hub.put("dataset", REPO, {"data/noise.bin": NOISE, "small.txt": b"small"})
    for _ in range(2):
        for name in hub.files("dataset", REPO):
            api_of(hub).hf_hub_download(REPO, name, repo_type="dataset", cache_dir=tmp_path)
    assert [method for method, path in hub.requests if "/resolve/" in path].count("GET") == 2
    etag = ask(hub, "HEAD", RAW).headers["ETag"]
    assert etag == f'"{hashlib.sha256(NOISE).hexdigest()}"'
    again = ask(hub, "GET", RAW, If_None_Match=etag)
    assert (again.status, again.data) == (304, b"")


# Revisions.


def test_branches_tags_and_shas_name_revisions(hub: FakeHub, tmp_path: Path) -> None:
    first = hub.put("dataset", REPO, {"v.txt": b"1"}, message="one")
    second = hub.put("dataset", REPO, {"v.txt": b"2"}, message="two")
    api = api_of(hub)
    api.create_tag(REPO, tag="v1.0", revision=first, repo_type="dataset")
    api.create_branch(REPO, branch="side/line", revision="v1.0", repo_type="dataset")
    side = CommitOperationAdd("side.txt", b"side")
    api.create_commit(REPO, [side], commit_message="aside", revision="side/line", repo_type="dataset")

    def text(revision: str) -> bytes:
        path = api.hf_hub_download(REPO, "v.txt", revision=revision, repo_type="dataset", cache_dir=tmp_path)
        return Path(path).read_bytes()

    names = ["main", second, second[:7], "v1.0", "refs/tags/v1.0", first, "side/line", "refs/heads/side/line"]
    assert [text(name) for name in names] == [b"2", b"2", b"2", b"1", b"1", b"1", b"1", b"1"]
    assert hub.files("dataset", REPO) == {"v.txt": b"2"}
    assert hub.files("dataset", REPO, "side/line") == {"v.txt": b"1", "side.txt": b"side"}
    titles = [c.title for c in api.list_repo_commits(REPO, revision="side/line", repo_type="dataset")]
    assert titles == ["aside", "one"]
    refs = api.list_repo_refs(REPO, repo_type="dataset", include_pull_requests=True)
    assert [(t.name, t.target_commit) for t in refs.tags] == [("v1.0", first)]
    assert {b.name for b in refs.branches} == {"main", "side/line"}
    with pytest.raises(RevisionNotFoundError):
        text("v2.0")
    with pytest.raises(HfHubHTTPError, match="409"):
        api.create_tag(REPO, tag="v1.0", repo_type="dataset")
    with pytest.raises(KeyError):
        hub.files("dataset", REPO, "v2.0")


def test_the_sha_follows_from_the_content() -> None:
    shas = [FakeHub().put("dataset", REPO, {"a": data}) for data in (b"1", b"1", b"2")]
    assert shas[0] == shas[1] != shas[2]


# Ranges.


@pytest.mark.parametrize(
    ("asked", "status", "expected", "content_range"),
    [
        ("bytes=0-9", 206, NOISE[:10], "bytes 0-9/300000"),
        ("bytes=299990-", 206, NOISE[-10:], "bytes 299990-299999/300000"),
        ("bytes=299990-999999", 206, NOISE[-10:], "bytes 299990-299999/300000"),
        ("bytes=-3", 206, NOISE[-3:], "bytes 299997-299999/300000"),
        ("bytes=300000-", 416, b"", "bytes */300000"),
        ("bytes=0-1,5-6", 200, NOISE, None),
    ],
)
def test_a_range_is_served(
    hub: FakeHub, asked: str, status: int, expected: bytes, content_range: str | None
) -> None:
    hub.put("dataset", REPO, {"data/noise.bin": NOISE})
    answer = ask(hub, "GET", RAW, Range=asked)
    assert (answer.status, answer.data, answer.headers["Content-Range"]) == (status, expected, content_range)


def test_the_file_system_reads_a_slice_from_the_middle(hub: FakeHub) -> None:
    hub.put("dataset", REPO, {"data/noise.bin": NOISE})
    files = cast(Any, HfFileSystem)(endpoint=hub.endpoint, token=hub.token, skip_instance_cache=True)
    with files.open(f"datasets/{REPO}/data/noise.bin", block_size=1000) as file:
        file.seek(200_000)
        assert file.read(5000) == NOISE[200_000:205_000]


# Who may do what.


def test_a_private_repo_is_missing_for_all_but_its_owner(hub: FakeHub, tmp_path: Path) -> None:
    api_of(hub).create_repo(REPO, repo_type="dataset", private=True)
    hub.put("dataset", REPO, {"a.txt": b"secret"})
    calls: list[Callable[[HfApi], object]] = [
        lambda api: api.dataset_info(REPO),
        lambda api: api.hf_hub_download(REPO, "a.txt", repo_type="dataset", cache_dir=tmp_path / "none"),
    ]
    for token, status in ((False, 401), (STRANGER_TOKEN, 404)):
        for call in calls:
            with pytest.raises(RepositoryNotFoundError) as refusal:
                call(api_of(hub, token))
            assert refusal.value.response.status_code == status
    path = api_of(hub).hf_hub_download(REPO, "a.txt", repo_type="dataset", cache_dir=tmp_path / "own")
    assert Path(path).read_bytes() == b"secret"
    assert api_of(hub).dataset_info(REPO).private is True


def test_a_missing_repo_looks_like_a_private_one(hub: FakeHub) -> None:
    for token, status in ((False, 401), (STRANGER_TOKEN, 404), (hub.token, 404)):
        with pytest.raises(RepositoryNotFoundError) as refusal:
            api_of(hub, token).dataset_info("org/nothing")
        assert refusal.value.response.status_code == status


def test_a_public_repo_is_read_by_all_and_written_by_its_owner(hub: FakeHub) -> None:
    hub.put("dataset", REPO, {"a.txt": b"a"})
    for token, status in ((False, 401), (STRANGER_TOKEN, 403), ("hf_unheard_of", 401)):
        with pytest.raises(HfHubHTTPError) as refusal:
            api_of(hub, token).create_branch(REPO, branch="mine", repo_type="dataset")
        assert refusal.value.response.status_code == status
    assert api_of(hub, False).list_repo_files(REPO, repo_type="dataset") == ["a.txt"]
    assert api_of(hub, STRANGER_TOKEN).list_repo_files(REPO, repo_type="dataset") == ["a.txt"]
    with pytest.raises(HfHubHTTPError, match="Invalid credentials"):
        api_of(hub, "hf_unheard_of").list_repo_files(REPO, repo_type="dataset")


# Commits are whole or nothing.


def test_a_commit_on_a_parent_that_is_no_longer_the_head_is_refused(hub: FakeHub) -> None:
    first = hub.put("dataset", REPO, {"a": b"1"})
    hub.put("dataset", REPO, {"a": b"2"})
    with pytest.raises(HfHubHTTPError, match="412"):
        api_of(hub).create_commit(
            REPO,
            [CommitOperationAdd("b", b"")],
            commit_message="late",
            parent_commit=first,
            repo_type="dataset",
        )
    assert hub.files("dataset", REPO) == {"a": b"2"}


def test_a_commit_with_one_impossible_operation_changes_nothing(hub: FakeHub) -> None:
    hub.put("dataset", REPO, {"a": b"1"})
    operations: list[Any] = [CommitOperationAdd("b", b"b"), CommitOperationDelete("nowhere")]
    with pytest.raises(EntryNotFoundError, match="differentiate file and folder"):
        api_of(hub).create_commit(REPO, operations, commit_message="half", repo_type="dataset")
    unsent = {"key": "lfsFile", "value": {"path": "c.bin", "oid": "0" * 64, "size": 1}}
    lines = [{"key": "header", "value": {"summary": "x"}}, unsent]
    assert ask(hub, "POST", COMMIT, "\n".join(map(json.dumps, lines)).encode()).status == 400
    assert [commit.files for commit in hub.commits("dataset", REPO)] == [{"a": b"1"}]


@pytest.mark.parametrize("framing", ["Content-Length: 400", "Transfer-Encoding: chunked"])
def test_half_a_request_has_no_effect(hub: FakeHub, framing: str, capfd: pytest.CaptureFixture[str]) -> None:
    hub.put("dataset", REPO, {"a": b"1"})
    port = int(hub.endpoint.rsplit(":", 1)[1])
    half = b'{"key": "header", "value": {"summary": "half"}}\n'
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = f"POST {COMMIT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {hub.token}\r\n{framing}\r\n\r\n"
        body = half if "Length" in framing else b"%x\r\n%s\r\n" % (len(half), half)
        connection.sendall(head.encode() + body)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert len(hub.commits("dataset", REPO)) == 1
    assert hub.requests == []
    assert "Traceback" not in capfd.readouterr().err


def test_an_lfs_object_that_is_not_what_was_announced_is_refused(hub: FakeHub) -> None:
    oid = hashlib.sha256(b"this").hexdigest()
    assert ask(hub, "PUT", f"/lfs-objects/{oid}", b"that").status == 400
    assert ask(hub, "PUT", f"/lfs-objects/{oid}", b"this").status == 200


def test_threads_that_upload_at_once_lose_nothing(hub: FakeHub) -> None:
    before = {f"old/{n}": b"" for n in range(2000)}  # so many that a commit takes its time
    hub.put("dataset", REPO, before)
    contents = {
        f"{who}/{n}.{ext}": f"{who} {n}".encode() * 500
        for who in "ab"
        for n in range(6)
        for ext in ("txt", "bin")
    }

    def upload(who: str) -> None:
        for name, data in contents.items():
            if name.startswith(who):
                api_of(hub).upload_file(
                    path_or_fileobj=data, path_in_repo=name, repo_id=REPO, repo_type="dataset"
                )

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(upload, "ab")) == [None, None]
    assert hub.files("dataset", REPO) == {**before, **contents}
    sizes = [len(commit.files) for commit in hub.commits("dataset", REPO)]
    assert sizes == list(range(len(before), len(before) + len(contents) + 1))


# Faults.


def commit_one(hub: FakeHub) -> Any:
    return api_of(hub).create_commit(
        REPO, [CommitOperationAdd("new", b"")], commit_message="new", repo_type="dataset"
    )


@pytest.mark.parametrize("status", [401, 403, 409, 429, 500, 503])
def test_a_status_fault_spoils_a_commit_as_often_as_it_says(status: int) -> None:
    with FakeHub(faults=[Fault("/commit/", "POST", 2, status)]) as hub:
        hub.put("dataset", REPO, {"a": b"1"})
        for _ in range(2):
            with pytest.raises(HfHubHTTPError) as refusal:
                commit_one(hub)
            assert refusal.value.response.status_code == status
            assert not isinstance(refusal.value, RepositoryNotFoundError)
            assert [commit.files for commit in hub.commits("dataset", REPO)] == [{"a": b"1"}]
        commit_one(hub)
        assert hub.files("dataset", REPO) == {"a": b"1", "new": b""}


def test_a_fault_picks_its_requests_by_path_method_and_turn() -> None:
    with FakeHub(faults=[Fault("noise", "GET", times=2, action=500, skip=1)]) as hub:
        hub.put("dataset", REPO, {"data/noise.bin": NOISE, "b": b""})
        methods = ["HEAD", "GET", "GET", "HEAD", "GET", "GET"]
        assert [ask(hub, method, RAW).status for method in methods] == [200, 200, 500, 200, 500, 200]
        hub.faults.append(Fault("/b$", action=403))
        assert ask(hub, "HEAD", f"/datasets/{REPO}/resolve/main/b").status == 403
        assert hub.requests[:2] == [("HEAD", RAW), ("GET", RAW)]


def test_the_client_waits_as_long_as_retry_after_says() -> None:
    with FakeHub(faults=[Fault("/preupload/", action=429, retry_after=0)]) as hub:
        hub.put("dataset", REPO, {})
        assert ask(hub, "POST", "/preupload/").headers["Retry-After"] == "0"
        hub.faults.append(Fault("/preupload/", action=429, retry_after=0))
        commit_one(hub)
        assert [path for _, path in hub.requests].count(f"/api/datasets/{REPO}/preupload/main") == 2


def test_a_download_that_is_dropped_half_way_arrives_whole_in_the_end(hub: FakeHub, tmp_path: Path) -> None:
    hub.put("dataset", REPO, {"data/noise.bin": NOISE})
    hub.faults.append(Fault("noise", "GET", action="drop"))
    with pytest.raises(http.client.IncompleteRead) as cut:
        ask(hub, "GET", RAW)
    assert cut.value.partial == NOISE[: len(NOISE) // 2]
    hub.faults.append(Fault("noise", "GET", action="drop"))
    path = api_of(hub).hf_hub_download(REPO, "data/noise.bin", repo_type="dataset", cache_dir=tmp_path)
    assert Path(path).read_bytes() == NOISE
    assert hub.requests[1:] == [("HEAD", RAW), ("GET", RAW), ("GET", RAW)]


def test_a_head_that_is_dropped_has_no_answer() -> None:
    with FakeHub(faults=[Fault("", action="drop")]) as hub, pytest.raises(http.client.RemoteDisconnected):
        ask(hub, "HEAD", "/")


@pytest.mark.parametrize(("action", "commits"), [("drop", 1), ("lose", 2)])
def test_a_dropped_commit_is_not_made_and_a_lost_one_is(action: Any, commits: int) -> None:
    with FakeHub(faults=[Fault("/commit/", action=action)]) as hub:
        hub.put("dataset", REPO, {"a": b"1"})
        with pytest.raises(httpx2.RemoteProtocolError):
            commit_one(hub)
        assert len(hub.commits("dataset", REPO)) == commits


def test_a_hang_holds_the_answer_back_and_a_client_that_gives_up_has_changed_nothing() -> None:
    hang = Fault("/branch/", action="hang", seconds=1.5, times=2)
    with FakeHub(faults=[hang]) as hub:
        hub.put("dataset", REPO, {"a": b"1"})
        with pytest.raises(TimeoutError):
            ask(hub, "POST", f"/api/datasets/{REPO}/branch/impatient", b"{}", timeout=0.1)
        start = time.monotonic()
        assert ask(hub, "POST", f"/api/datasets/{REPO}/branch/patient", b"{}").status == 200
        assert time.monotonic() - start >= 1.5
        names = {branch.name for branch in api_of(hub).list_repo_refs(REPO, repo_type="dataset").branches}
        assert names == {"main", "patient"}


@pytest.mark.parametrize("action", [200, 302, 999, "explode"])
def test_a_fault_that_is_none_is_refused(action: Any) -> None:
    with pytest.raises(ValueError, match="action must be"):
        Fault("/", action=action)


# The life of a hub.


def test_a_closed_hub_answers_nobody_and_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    with FakeHub(faults=[Fault("/slow", action="hang", seconds=60)]) as hub:
        home = Path(hub.environment()["HF_HOME"])
        kept = http.client.HTTPConnection(hub.endpoint.removeprefix("http://"))
        kept.request("GET", "/api/whoami-v2")
        assert kept.getresponse().read()
        slow = http.client.HTTPConnection(hub.endpoint.removeprefix("http://"))
        slow.request("GET", "/slow")
        while ("GET", "/slow") not in hub.requests:
            time.sleep(0.01)
        assert home.is_dir()
    assert set(threading.enumerate()) == before
    assert not home.exists()
    with pytest.raises(ConnectionError):
        slow.getresponse()
    kept.request("GET", "/api/whoami-v2")
    with pytest.raises(ConnectionError):
        kept.getresponse()
    with pytest.raises(ConnectionRefusedError):
        ask(hub, "GET", "/")
    kept.close()
    slow.close()


def test_a_port_that_is_taken_is_named(hub: FakeHub) -> None:
    port = int(hub.endpoint.rsplit(":", 1)[1])
    with pytest.raises(ConfigError, match=f"127.0.0.1:{port}: Address already in use"), FakeHub(port=port):
        pass


def test_what_is_not_served_is_said_not_to_be(hub: FakeHub) -> None:
    hub.put("dataset", REPO, {})
    for method, path in (
        ("GET", "/nonsense"),
        ("POST", f"{COMMIT}?create_pr=1"),
        ("GET", f"/api/datasets/{REPO}/x"),
    ):
        answer = ask(hub, method, path, b"")
        assert (answer.status, b"does not serve" in answer.data) == (404, True)


def test_put_wants_a_kind_and_an_org(hub: FakeHub) -> None:
    for kind, repo_id in (("datasets", REPO), ("dataset", "name"), ("dataset", "../name/x")):
        with pytest.raises(ValueError, match="org/name"):
            hub.put(kind, repo_id, {})


# The datasets library.

LOAD = """
import json
from datasets import load_dataset
seen = {}
for repo, revision in %r:
    seen[f"{repo}@{revision}"] = [
        load_dataset(repo, split="train", revision=revision).to_list(),
        list(load_dataset(repo, split="train", revision=revision, streaming=True)),
    ]
print(json.dumps(seen))
"""


def test_load_dataset_gives_the_rows_of_the_revision_streaming_or_not(hub: FakeHub) -> None:
    old: list[dict[str, Any]] = [{"a": 1, "text": "\u4e16", "messages": [{"role": "user", "content": "x"}]}]
    new = [*old, {"a": 2, "text": None, "messages": []}]
    expected = {}
    for repo, name, encode in (
        ("org/parquet", "data/train-00000-of-00001.parquet", parquet),
        ("org/jsonl", "train.jsonl", lambda rows: "".join(json.dumps(row) + "\n" for row in rows).encode()),
    ):
        first = hub.put("dataset", repo, {name: encode(old)})
        api_of(hub).create_tag(repo, tag="v1", repo_type="dataset")
        hub.put("dataset", repo, {name: encode(new)})
        for revision, rows in ((first, old), ("v1", old), ("main", new)):
            expected[f"{repo}@{revision}"] = [rows, rows]
    assert run(hub, LOAD % [key.split("@") for key in expected]) == expected


PUSH = """
import json
from datasets import Dataset, DatasetDict, load_dataset
rows = [{"id": n, "text": "\u4e16" * n, "score": n / 3, "tags": [{"k": str(n)}], "none": None} for n in range(50)]
whole = Dataset.from_list(rows)
whole.push_to_hub("org/pushed", num_shards=3)
whole.select(range(5)).push_to_hub("org/pushed", num_shards=1)
DatasetDict({"train": whole, "test": whole.select(range(9))}).push_to_hub("org/configs", "sft", private=True)
print(json.dumps([
    load_dataset("org/pushed", split="train").to_list() == rows[:5],
    load_dataset("org/configs", "sft", split="train").to_list() == rows,
    list(load_dataset("org/configs", "sft", split="test", streaming=True)) == rows[:9],
]))
"""


@pytest.mark.heavy
def test_what_is_pushed_is_loaded_and_a_second_push_replaces_the_first(hub: FakeHub) -> None:
    assert run(hub, PUSH) == [True, True, True]
    shard = "data/train-{}.parquet"
    assert [sorted(commit.files) for commit in hub.commits("dataset", "org/pushed")] == [
        [],
        ["README.md", *(shard.format(f"0000{n}-of-00003") for n in range(3))],
        ["README.md", shard.format("00000-of-00001")],
    ]
    with pytest.raises(RepositoryNotFoundError):
        api_of(hub, False).dataset_info("org/configs")


TRY = """
import json
from datasets import load_dataset
try:
    print(json.dumps(load_dataset("org/private", split="train").to_list()))
except Exception as error:
    print(json.dumps(type(error).__name__))
"""


@pytest.mark.heavy
def test_load_dataset_of_a_private_repo_needs_the_token(hub: FakeHub) -> None:
    hub.put("dataset", "org/private", {"train.jsonl": b'{"a": 1}\n'}, private=True)
    assert run(hub, TRY, HF_TOKEN="") == "DatasetNotFoundError"
    assert run(hub, TRY) == [{"a": 1}]
