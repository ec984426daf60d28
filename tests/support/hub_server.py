"""Server on the loopback address that speaks the protocol of the Hugging Face hub, for reading models.

    GET  /api/models/OWNER/NAME[/revision/REVISION]   commit, and the files with their sizes
    HEAD /OWNER/NAME/resolve/REVISION/PATH            commit, checksum and size of a file
    GET  /OWNER/NAME/resolve/REVISION/PATH            contents

A token is in the header `Authorization`. Errors have a code in the header `X-Error-Code`.
"""

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


@dataclass
class Repository:
    """Repository with the files of each commit, and the commit of each branch and tag.

    Attributes:
        commits: path and contents of the files by commit.
        revisions: commit by branch or tag.
        is_gated: whether files can only be read with a token in `readers`.
        is_private: whether the repository can only be found with a token in `readers`.
        readers: tokens with access.
        reported_sizes: sizes to report instead of the true ones, by path.
    """

    commits: dict = field(default_factory=dict)
    revisions: dict = field(default_factory=dict)
    is_gated: bool = False
    is_private: bool = False
    readers: tuple = ()
    reported_sizes: dict = field(default_factory=dict)

    def commit(self, files, revision="main"):
        """Adds a commit with these files to a branch. Returns its name."""
        files = {path: data if isinstance(data, bytes) else data.encode() for path, data in files.items()}
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[commit] = files
        self.revisions[revision] = commit
        return commit


class HubServer:
    """Running server. Use it as a context manager.

    Attributes:
        url: address of the server.
        repositories: repositories by name.
        tokens: valid tokens.
        requests: method, path and token of each request since the start.
        downloads: paths of the files that were sent, in order.
        truncated: paths of the files of which only the first half is sent.
        reported_commit: text that is reported as the commit of every revision.
        status: status of all responses, as of a server that is down; or `None`.
        page: content of all responses, as of a network that requires a login; or `None`.
    """

    def __init__(self):
        self.repositories, self.tokens = {}, set()
        self.requests, self.downloads, self.truncated, self.status = [], [], set(), None
        self.reported_commit = None
        self.page: bytes | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *error):
        self.stop()

    def stop(self):
        """Stops the server. Later connections are rejected."""
        if self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._thread = None

    def add(self, name, files=None, **options):
        """Adds a repository, with these files at `main`."""
        repository = self.repositories[name] = Repository(**options)
        if files is not None:
            repository.commit(files)
        return repository


class _Handler(BaseHTTPRequestHandler):
    """Handler of one request."""

    hub: HubServer

    def log_message(self, *args):
        """Prints nothing."""

    def do_GET(self):
        self._respond()

    def do_HEAD(self):
        self._respond()

    def _respond(self):
        path = urlsplit(self.path).path
        token = self.headers.get("Authorization", "").removeprefix("Bearer ") or None
        self.hub.requests.append((self.command, path, token))
        if self.hub.status is not None:
            self._send(self.hub.status)
        elif self.hub.page is not None:
            self._send(200, self.hub.page)
        elif token is not None and token not in self.hub.tokens:
            self._send(401, **{"X-Error-Message": "Invalid credentials in Authorization header"})
        elif path.startswith("/api/models/"):
            self._respond_to_api(path, token)
        else:
            self._respond_to_resolve(path, token)

    def _find_commit(self, name, revision, token):
        """Returns the repository and a commit; `None` if an error was sent."""
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.is_private and token not in repository.readers):
            # An anonymous client does not learn whether a repository exists.
            self._send(404 if token else 401, **{"X-Error-Code": "RepoNotFound"})
            return None
        commit = revision if revision in repository.commits else repository.revisions.get(revision)
        if commit is None:
            self._send(404, **{"X-Error-Code": "RevisionNotFound"})
            return None
        return repository, commit

    def _respond_to_api(self, path, token):
        name, _, revision = path.removeprefix("/api/models/").partition("/revision/")
        found = self._find_commit(name, unquote(revision) or "main", token)
        if found is None:
            return
        repository, commit = found
        files = [
            {
                "rfilename": path,
                "size": repository.reported_sizes.get(path, len(data)),
                "blobId": compute_blob_id(data),
            }
            for path, data in repository.commits[commit].items()
        ]
        info = {
            "id": name,
            "sha": self.hub.reported_commit or commit,
            "private": False,
            "tags": [],
            "siblings": files,
        }
        self._send(200, json.dumps(info).encode())

    def _respond_to_resolve(self, path, token):
        name, _, rest = path.removeprefix("/").partition("/resolve/")
        revision, _, file = rest.partition("/")
        found = self._find_commit(name, unquote(revision), token)
        if found is None:
            return
        repository, commit = found
        headers = {"X-Repo-Commit": commit}
        data = repository.commits[commit].get(unquote(file))
        if repository.is_gated and token not in repository.readers:
            self._send(403 if token else 401, **headers, **{"X-Error-Code": "GatedRepo"})
        elif data is None:
            self._send(404, **headers, **{"X-Error-Code": "EntryNotFound"})
        else:
            self._send_file(unquote(file), data, ETag=f'"{compute_blob_id(data)}"', **headers)

    def _send_file(self, path, data, **headers):
        if self.command == "GET":
            self.hub.downloads.append(path)
            if path in self.hub.truncated:
                data = data[: len(data) // 2]
        self._send(200, data, **headers)

    def _send(self, status, data=b"", **headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(data), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def compute_blob_id(data):
    """Returns the id of a file in git, which is its checksum in the protocol."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
