"""The HTTP API as the tests use it. Raises ApiError for an error answer; knows nothing about what is being tested."""

import contextlib
import http.client
import json
import time
import urllib.parse


class ApiError(Exception):
    def __init__(self, status, body):
        self.status = status
        self.body = body
        error = body.get("error", {}) if isinstance(body, dict) else {}
        self.code = error.get("code")
        super().__init__(f"{status} {error.get('code')}: {error.get('message')} ({error.get('hint')})")


class Client:
    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.address = (parts.hostname, parts.port)

    def connect(self, timeout):
        return http.client.HTTPConnection(*self.address, timeout=timeout)

    def call(self, method, path, /, body=None, timeout=180, **query):
        """One request with JSON (or bytes) in and JSON (or bytes) out."""
        data, kind = body, "application/octet-stream"
        if body is not None and not isinstance(body, (bytes, bytearray)) and not hasattr(body, "read"):
            data, kind = json.dumps(body).encode(), "application/json"
        with contextlib.closing(self.connect(timeout)) as connection:
            headers = {"Content-Type": kind} if data is not None else {}
            connection.request(method, with_query(path, query), body=data, headers=headers, encode_chunked=hasattr(data, "read"))
            answer = connection.getresponse()
            content = answer.read()
            if "json" in answer.headers.get("Content-Type", ""):
                content = json.loads(content)
            if answer.status >= 400:
                raise ApiError(answer.status, content)
            return content

    @contextlib.contextmanager
    def stream(self, method, path, /, body=None, timeout=180, **query):
        """The answer's bytes as a file object."""
        with contextlib.closing(self.connect(timeout)) as connection:
            headers = {"Content-Type": "application/json"}
            connection.request(method, with_query(path, query), body=json.dumps(body) if body is not None else None, headers=headers)
            answer = connection.getresponse()
            if answer.status >= 400:
                raise ApiError(answer.status, json.loads(answer.read()))
            yield answer

    def healthy(self):
        try:
            return self.call("GET", "/v1/health", timeout=5)["status"] == "ok"
        except (OSError, ApiError, ValueError):
            return False

    def create(self, **fields):
        return Sandbox(self, self.call("POST", "/v1/sandboxes", {"template": "base", **fields}))

    def list(self):
        return self.call("GET", "/v1/sandboxes")["sandboxes"]


def with_query(path, query):
    return f"{path}?{urllib.parse.urlencode(query)}" if query else path


class Sandbox:
    """One sandbox; deleted at the end of a `with` block."""

    def __init__(self, client, document):
        self.client = client
        self.document = document
        self.id = document["id"]
        self.path = f"/v1/sandboxes/{self.id}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.delete()

    def delete(self):
        with contextlib.suppress(ApiError):
            self.client.call("DELETE", self.path)

    def get(self):
        return self.client.call("GET", self.path)

    def exec(self, command, **fields):
        """The whole result of a shell command (or argv, if a list)."""
        how = {"argv": command} if isinstance(command, list) else {"command": command}
        return self.client.call("POST", f"{self.path}/exec", {**how, **fields})

    def run(self, command, **fields):
        """stdout of a command that must succeed, without the last newline."""
        result = self.exec(command, **fields)
        assert result["exit_code"] == 0, f"{command!r} in {self.id}: {result}"
        return result["stdout"].rstrip("\n")

    def start(self, command, **fields):
        """Starts a command that goes on after the request; returns its pid."""
        return self.client.call("POST", f"{self.path}/exec", {"command": command, "detach": True, **fields})["pid"]

    def attach(self, pid, **query):
        """Events of a running command, as a generator."""
        with self.client.stream("GET", f"{self.path}/processes/{pid}/output", **query) as lines:
            for line in lines:
                yield json.loads(line)

    def write(self, path, data, **query):
        return self.client.call("PUT", f"{self.path}/files", data, path=path, **query)

    def read(self, path, **query):
        return self.client.call("GET", f"{self.path}/files", path=path, **query)

    def fork(self, n=1, **fields):
        """(children, the whole answer)."""
        answer = self.client.call("POST", f"{self.path}/fork", {"n": n, **fields}, timeout=600)
        return [Sandbox(self.client, child) for child in answer["children"]], answer

    def wait_for(self, command, seconds=60):
        """Until the command succeeds inside; returns its output."""
        end = time.monotonic() + seconds
        while True:
            result = self.exec(command)
            if result["exit_code"] == 0:
                return result["stdout"].rstrip("\n")
            assert time.monotonic() < end, f"{command!r} in {self.id} still fails after {seconds} s: {result}"
            time.sleep(0.2)


@contextlib.contextmanager
def deleting(sandboxes):
    """Deletes all of them at the end, whatever happened."""
    try:
        yield sandboxes
    finally:
        for sandbox in sandboxes:
            sandbox.delete()
