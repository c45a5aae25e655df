"""{repository: {file: bytes}} -> an HTTP server that answers huggingface_hub as the Hub would.

The client under test is the genuine one; only the other end of the wire is played. Blind spot: it
knows one revision per repository and no Xet storage.
"""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """repositories may be changed while it runs; so may the ways to misbehave below."""

    def __init__(self, repositories):
        self.repositories = repositories
        self.gated = set()  # repositories whose files are refused
        self.private = {}  # repository -> the token without which it isn't there
        self.cut = {}  # file -> bytes after which the connection breaks
        self.slow = {}  # file -> seconds between blocks of 1,000 bytes
        self.status = 200  # anything else is the answer to all requests
        self.requests = []  # "METHOD path", as they came
        self.authorizations = []  # the header of that name of each, None where it has none
        self.released = threading.Event()  # ends the slow answers

    @contextmanager
    def running(self):
        """Serve until the end of the block; self.environment points huggingface_hub here."""
        handler = type("Handler", (_Handler,), {"hub": self})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self.released.set()
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        self.hub.requests.append(f"{self.command} {self.path}")
        self.hub.authorizations.append(self.headers.get("Authorization"))
        parts = self.path.split("?")[0].strip("/").split("/")
        if self.hub.status != 200:
            return self.refuse(self.hub.status, "")
        if parts[:2] == ["api", "models"]:
            return self.describe("/".join(parts[2:4]))
        return self.send_file("/".join(parts[:2]), "/".join(parts[4:]))  # ORG/NAME/resolve/REV/FILE

    def files(self, repository):
        """What this caller may know of; None where that is nothing."""
        token = self.hub.private.get(repository)
        if token and self.headers.get("Authorization") != f"Bearer {token}":
            return None
        return self.hub.repositories.get(repository)

    def describe(self, repository):
        files = self.files(repository)
        if files is None:
            return self.refuse(401, "RepoNotFound")  # as the Hub does for who isn't logged in
        content = {"id": repository, "sha": COMMIT, "siblings": [{"rfilename": n} for n in files]}
        self.send(json.dumps(content).encode(), {"Content-Type": "application/json"})

    def send_file(self, repository, name):
        files = self.files(repository) or {}
        if repository in self.hub.gated:
            return self.refuse(403, "GatedRepo")
        if name not in files:
            return self.refuse(404, "EntryNotFound")
        etag = hashlib.sha256(files[name]).hexdigest()
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}
        self.send(files[name], headers, cut=self.hub.cut.get(name), pause=self.hub.slow.get(name))

    def send(self, content, headers, *, cut=None, pause=None):
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        self.send_response(206 if start else 200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        body = content[start : cut or len(content)]
        for block in range(0, len(body), 1000):
            self.wfile.write(body[block : block + 1000])
            if pause and self.hub.released.wait(pause):
                break
        if len(body) < len(content) - start:
            self.close_connection = True

    def refuse(self, status, code):
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", "refused by the fake Hub")
        self.send_header("Content-Length", "0")
        self.end_headers()
