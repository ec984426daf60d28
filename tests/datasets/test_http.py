"""Datasets on a real HTTP server, which answers correctly or attacks its client."""

import gzip
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest

import tokjax
from tests.support.counted_files import PACKED
from tokjax._util import urls

pytest.importorskip("aiohttp")

SHARD = "shard-00000.tokens.npy"
MEGABYTE = bytes(1 << 20)


class Handler(BaseHTTPRequestHandler):
    """Sends files. `attack` is how it sends the bodies of shards."""

    attack = "none"

    def log_message(self, *args):
        """Prints nothing."""

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.server.directory / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        data, part = path.read_bytes(), self.headers.get("Range")
        start, _, last = (part or "bytes=0-").removeprefix("bytes=").partition("-")
        body = data[int(start) : int(last or len(data)) + 1]
        attack = self.attack if path.name == SHARD and self.command == "GET" else "none"
        self.send_response(206 if part else 200)
        if attack == "gzip":
            body = gzip.compress(MEGABYTE * 100, 1)
            self.send_header("Content-Encoding", "gzip")
        if part:
            first = 0 if attack == "other range" else start
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        if attack != "endless":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            with suppress(OSError):  # the client closes the connection
                self.send_body(body, attack, is_part=bool(part))

    def send_body(self, body, attack, *, is_part):
        if attack in ("break", "silence") and not is_part:
            self.wfile.write(body[: len(body) // 2])
            self.server.released.wait() if attack == "silence" else None
        elif attack == "endless":
            for self.server.num_megabytes in range(1000):
                self.wfile.write(MEGABYTE)
        else:
            self.wfile.write(body)


@pytest.fixture
def server(tmp_path):
    tokjax.write_dataset(["a" * 499] * 4, PACKED, tmp_path / "data", shard_size=1000)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("AttackingHandler", (Handler,), {}))
    server.directory, server.released, server.num_megabytes = tmp_path, Event(), 0
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def url(server):
    return f"http://127.0.0.1:{server.server_address[1]}/data"


@pytest.mark.parametrize("options", [{}, {"read_ranges": True}])
@pytest.mark.parametrize("attack", ["none", "break", "gzip", "endless", "other range"])
def test_servers(server, url, attack, options):
    server.RequestHandlerClass.attack = attack
    dataset = tokjax.open_dataset(url, **options)
    if attack in ("none", "break") or (attack == "other range" and not options):
        # after a break, the rest is requested
        assert (
            dataset.read(0, 1010).tolist()
            == tokjax.open_dataset(server.directory / "data").read(0, 1010).tolist()
        )
        return
    error, message = {
        "gzip": (ConnectionError, f"{SHARD} can't be read: .*sent the file with Content-Encoding: gzip"),
        "other range": (ConnectionError, "the server sent bytes 0-.* for bytes=1"),
        "endless": (
            tokjax.errors.DatasetCorruptError,
            f"{SHARD}( was altered: it has|: more bytes were received)",
        ),
    }[attack]
    with pytest.raises(error, match=message):
        dataset.read(10, 20)
    assert server.num_megabytes < 50


@pytest.fixture
def _half_a_second(monkeypatch):
    monkeypatch.setattr(urls, "SILENCE_SECONDS", 0.5)
    urls.get_client_options.cache_clear()
    yield
    urls.get_client_options.cache_clear()


@pytest.mark.usefixtures("_half_a_second")
def test_only_silence_is_limited(server, url):
    assert urls.get_client_options()["timeout"].total is None
    server.RequestHandlerClass.attack = "silence"
    dataset = tokjax.open_dataset(url)
    # The half that has arrived is kept, and the server answers the request of the rest.
    assert len(dataset.read(0, 10)) == 10
    server.RequestHandlerClass.send_body = lambda *_, **__: server.released.wait()
    with pytest.raises(
        ConnectionError, match=f"{url}.* can't be read: the server sent nothing for 0.5 seconds$"
    ):
        tokjax.open_dataset(url)


def test_compressed_files_are_read_as_they_are(server, url):
    """Servers declare such files as compressed, and send them as they are."""
    server.RequestHandlerClass.attack = "none"
    (server.directory / "data" / "a.txt.gz").write_bytes(gzip.compress(b"one\n\ntwo"))
    send = Handler.send_response

    def send_response(self, *arguments):
        send(self, *arguments)
        self.send_header("Content-Encoding", "gzip")

    server.RequestHandlerClass.send_response = send_response
    assert [*tokjax.corpus.read_documents(f"{url}/a.txt.gz", "\n\n")] == [b"one", b"two"]
