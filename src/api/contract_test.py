#!/usr/bin/python3
"""api/openapi.yaml against the running server: routes, error codes, and the body of every answer.

contract_test.py API_FAKE_SERVER OPENAPI_YAML
"""

import base64
import http.client
import io
import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest
import urllib.parse

import yaml

PROGRAM, CONTRACT = sys.argv[1], sys.argv[2]
DOCUMENT = yaml.safe_load(pathlib.Path(CONTRACT).read_text(encoding="utf-8"))
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


class Mismatch(Exception):
    pass


def resolved(schema):
    while "$ref" in schema:
        node = DOCUMENT
        for part in schema["$ref"].removeprefix("#/").split("/"):
            node = node[part]
        schema = node
    return schema


def has_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def check(value, schema, where="body"):
    """The part of JSON Schema that the contract uses."""
    schema = resolved(schema)
    types = schema.get("type", [])
    types = types if isinstance(types, list) else [types]
    if types and not any(has_type(value, t) for t in types):
        raise Mismatch(f"{where}: {value!r} is not {types}")
    if "enum" in schema and value not in schema["enum"]:
        raise Mismatch(f"{where}: {value!r} is not one of {schema['enum']}")
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        raise Mismatch(f"{where}: {value!r} does not match {schema['pattern']}")
    if isinstance(value, str) and schema.get("format") == "date-time":
        if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", value):
            raise Mismatch(f"{where}: {value!r} is no time")
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for name in schema.get("required", []):
            if name not in value:
                raise Mismatch(f"{where}: {name} is missing")
        for name, entry in value.items():
            if name in known:
                check(entry, known[name], f"{where}.{name}")
            elif schema.get("additionalProperties") is False:
                raise Mismatch(f"{where}: {name} is not in the contract")
            elif isinstance(schema.get("additionalProperties"), dict):
                check(entry, schema["additionalProperties"], f"{where}.{name}")
    if isinstance(value, list):
        for i, entry in enumerate(value):
            check(entry, schema.get("items", {}), f"{where}[{i}]")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class ContractTest(unittest.TestCase):
    covered = set()

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = f"{cls.folder.name}/api.sock"
        cls.server = subprocess.Popen([PROGRAM, cls.path], stdout=subprocess.PIPE)
        cls.server.stdout.readline()
        cls.table = json.loads(subprocess.check_output([PROGRAM, "--table"]))

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        assert cls.server.wait(10) == 0
        cls.server.stdout.close()
        cls.folder.cleanup()

    def call(self, operation, body=None, status=None, raw=None, headers=None, query=None, **path):
        """Calls an operation by its operationId and checks the answer against the contract. Returns what it said."""
        route = next(r for r in self.table["routes"] if r["operation"] == operation)
        target = re.sub(r"\{(\w+)\}", lambda m: urllib.parse.quote(str(path[m[1]]), safe=""), route["path"])
        if query:
            target += "?" + urllib.parse.urlencode(query)
        headers = dict(headers or {})
        data = raw
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        connection = UnixConnection(self.path)
        connection.request(route["method"], target, data, headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        described = DOCUMENT["paths"][route["path"]][route["method"].lower()]["responses"]
        expected = described.get(str(response.status)) or resolved(described["default"])
        kind = (response.headers["Content-Type"] or "").split(";")[0]
        if status:
            self.assertEqual(response.status, status, text)
        if str(response.status) in described:
            self.covered.add(operation)
        else:
            row = next(e for e in self.table["errors"] if e["code"] == json.loads(text)["error"]["code"])
            self.assertEqual(row["status"], response.status)
        self.assertTrue(response.headers["Ramet-Request-Id"].startswith("req_"))
        if "content" not in expected:
            self.assertEqual(text, b"")
            return None
        schema = expected["content"][kind]["schema"]
        if kind == "application/json":
            answer = json.loads(text)
            check(answer, schema)
            return answer
        if kind == "application/x-ndjson":
            events = [json.loads(line) for line in text.splitlines()]
            for event in events:
                check(event, schema)
            return events
        return text

    def sandbox(self, **more):
        return self.call("createSandbox", {"template": "base", **more}, status=201)["id"]

    def test_routes_of_contract_and_server_are_the_same(self):
        described = {(method.upper(), path, operation["operationId"]) for path, item in DOCUMENT["paths"].items()
                     for method, operation in item.items() if method != "parameters"}
        served = {(r["method"], r["path"], r["operation"]) for r in self.table["routes"]}
        self.assertEqual(described, served)

    def test_error_codes_and_statuses_are_listed(self):
        listed = resolved({"$ref": "#/components/schemas/ErrorCode"})
        self.assertEqual(set(listed["enum"]), {e["code"] for e in self.table["errors"]})
        words = {}
        for status, codes in re.findall(r"(\d{3}): ([a-z_, \n]+)", listed["description"]):
            for code in re.findall(r"[a-z_]+", codes):
                words[code] = int(status)
        for error in self.table["errors"]:
            self.assertEqual(words.get(error["code"]), error["status"], error["code"])

    def test_every_reference_resolves(self):
        def walk(node):
            if isinstance(node, dict):
                if "$ref" in node:
                    resolved(node)
                for entry in node.values():
                    walk(entry)
            elif isinstance(node, list):
                for entry in node:
                    walk(entry)
        walk(DOCUMENT)

    def test_bodies(self):
        """One walk through every operation; the end says which was never answered with success."""
        self.call("getHealth", status=200)
        self.call("getHost", status=200)
        box = self.sandbox(labels={"name": "a"}, ttl_seconds=600, idle_seconds=90, env={"A": "1"})
        self.call("listSandboxes", status=200)
        self.assertEqual(len(self.call("listSandboxes", query={"label": "name=a"})["sandboxes"]), 1)
        self.assertEqual(self.call("listSandboxes", query={"label": "name=b"})["sandboxes"], [])
        self.call("getSandbox", id=box, status=200)
        self.assertIsNone(self.call("patchSandbox", {"ttl_seconds": 0}, id=box, status=200)["expires_at"])
        self.assertEqual(self.call("getSandbox", id=box, status=200)["idle_seconds"], 90)
        self.assertEqual(self.call("patchSandbox", {"idle_seconds": 0}, id=box, status=200)["idle_seconds"], 0)
        forked = self.call("forkSandbox", {"n": 3, "mode": "partial", "labels": {"fail": "1"}}, id=box, status=201)
        self.assertEqual((len(forked["children"]), forked["failed"][0]["index"]), (2, 1))
        self.call("forkSandbox", id=box, status=201)
        self.call("getTree", status=200)
        self.assertIn(b"ready", self.call("getLogs", id=box, status=200))
        self.processes(box)
        self.files(box)
        self.templates()
        self.images()
        self.disks(box)
        self.call("deleteSandbox", id=box, status=204)
        self.snapshots()
        self.assertEqual({r["operation"] for r in self.table["routes"]} - self.covered, set())

    def processes(self, box):
        result = self.call("exec", {"command": "echo out; echo err >&2; exit 3"}, id=box, status=200)
        self.assertEqual((result["exit_code"], result["stdout"], result["stderr"]), (3, "out\n", "err\n"))
        self.assertEqual(self.call("exec", {"command": "kill -9 $$"}, id=box)["signal"], "SIGKILL")
        self.assertTrue(self.call("exec", {"argv": ["sleep", "9"], "timeout_seconds": 0.1}, id=box)["timed_out"])
        binary = self.call("exec", {"command": "head -c 4 /dev/zero; printf '\\377'"}, id=box)
        self.assertEqual(base64.b64decode(binary["stdout"]), b"\0\0\0\0\xff")
        events = self.call("exec", {"command": "echo x", "stream": True}, id=box, status=200)
        self.assertEqual([e["type"] for e in events], ["started", "stdout", "exit"])
        pid = self.call("exec", {"argv": ["cat"], "detach": True, "stdin_open": True}, id=box, status=202)["pid"]
        self.call("writeStdin", raw=b"hello", id=box, pid=pid, status=204)
        self.call("writeStdin", id=box, pid=pid, query={"eof": 1}, status=204)
        events = self.call("attachProcess", id=box, pid=pid, status=200)
        self.assertEqual("".join(e.get("data", "") for e in events), "hello")
        shell = self.call("exec", {"pty": {"rows": 5, "cols": 40}, "detach": True}, id=box, status=202)["pid"]
        self.call("resizeTerminal", {"rows": 7, "cols": 41}, id=box, pid=shell, status=204)
        self.call("signalProcess", {"signal": "KILL"}, id=box, pid=shell, status=204)
        self.assertTrue(self.call("listProcesses", id=box, status=200)["processes"])

    def files(self, box):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/a b+c"
            entry = self.call("writeFile", raw=b"\0data", query={"path": path, "mode": "0600"}, id=box, status=200)
            self.assertEqual((entry["size_bytes"], entry["mode"]), (5, "0600"))
            self.assertEqual(self.call("readFile", query={"path": path}, id=box, status=200), b"\0data")
            self.assertEqual(self.call("readFile", query={"path": path, "offset": 1, "length": 2}, id=box), b"da")
            self.call("statFile", query={"path": path}, id=box, status=200)
            self.call("makeDirectory", {"path": f"{folder}/d/e", "parents": True}, id=box, status=204)
            self.call("moveFile", {"from": path, "to": f"{folder}/d/f"}, id=box, status=204)
            self.assertEqual(len(self.call("listFiles", query={"path": f"{folder}/d"}, id=box, status=200)["entries"]), 2)
            self.call("removeFile", query={"path": f"{folder}/d", "recursive": 1}, id=box, status=204)

    def templates(self):
        for file in ("vmlinux", "initrd", "disk.img"):
            self.call("uploadTemplateFile", raw=b"x" * 1000, name="mine", file=file, status=200)
        manifest = {"format": 1, "name": "mine", "kernel_release": "6", "vcpus": 1, "memory_mib": 256, "disk_bytes": 1000,
                    "files": {f: {"bytes": 1000, "sha256": "0" * 64} for f in ("vmlinux", "initrd", "disk.img")}}
        check(manifest, {"$ref": "#/components/schemas/TemplateManifest"})
        self.call("commitTemplate", manifest, name="mine", status=201)
        self.assertIn("mine", [t["name"] for t in self.call("listTemplates", status=200)["templates"]])
        self.call("deleteTemplate", name="mine", status=204)
        snapshot = self.call("createSnapshot", {}, status=201, id=self.sandbox())["snapshot"]["id"]
        saved = self.call("saveTemplate", {"snapshot": snapshot, "env": {"A": "b"}}, name="warm", status=201)
        self.assertEqual((saved["files"], saved["env"]), ({}, {"A": "b"}))
        self.call("createSandbox", {"template": "warm"}, status=201)
        self.call("saveTemplate", {"snapshot": "nothere"}, name="warm", status=404)
        self.call("saveTemplate", {}, name="warm", status=400)
        self.call("deleteTemplate", name="warm", status=204)
        self.call("deleteSnapshot", id=snapshot, status=204)

    def images(self):
        disk = bytes(8192) + b"x" * 4096
        image = self.call("importImage", raw=disk, name="a", status=201)
        self.assertEqual(image["bytes"], len(disk))
        self.call("importImage", raw=disk[:-1], name="b", query={"parent": "a"}, status=201)
        self.assertEqual([i["name"] for i in self.call("listImages", status=200)["images"]], ["a", "b"])
        self.call("getImage", name="a", status=200)
        self.assertEqual(self.call("exportImage", name="a", status=200), disk)
        self.assertEqual(self.call("exportImage", name="b", status=200), disk[:-1] + b"\0")
        diff = self.call("diffImages", name="a", query={"with": "b"}, status=200)
        self.assertEqual(diff, {"changed_bytes": 4096, "changed_chunks": 1, "ranges": [{"offset": 8192, "length": 4096}], "truncated": False})
        for name in ("a", "b"):
            self.call("deleteImage", name=name, status=204)

    def snapshots(self):
        sandbox = self.sandbox()
        made = self.call("createSnapshot", {"name": "warm", "keep_seconds": 0, "labels": {"a": "b"}}, status=201, id=sandbox)
        snapshot = made["snapshot"]
        self.assertEqual((snapshot["name"], snapshot["sandbox_id"], snapshot["expires_at"]), ("warm", sandbox, None))
        self.assertEqual(self.call("listSnapshots")["snapshots"], [snapshot])
        self.assertEqual(self.call("getSnapshot", id="warm"), snapshot)
        self.assertEqual(self.call("createSnapshot", {"name": "warm"}, status=409, id=sandbox)["error"]["code"], "exists")
        self.call("createSandbox", {"snapshot": "warm"}, status=201)
        self.assertEqual(self.call("patchSnapshot", {"name": "cool"}, id=snapshot["id"])["name"], "cool")
        self.assertEqual(self.call("rollbackSandbox", {"snapshot": "cool"}, status=200, id=sandbox)["id"], sandbox)
        self.assertEqual(self.call("rollbackSandbox", {"snapshot": "warm"}, status=404, id=sandbox)["error"]["code"], "not_found")
        self.call("deleteSnapshot", status=204, id="cool")
        self.call("getSnapshot", status=404, id="cool")
        for body in ({}, {"template": "base", "snapshot": "x"}, {"snapshot": "x", "vcpus": 2}):
            self.assertEqual(self.call("createSandbox", body, status=400)["error"]["code"], "invalid")
        self.assertEqual(self.call("pauseSandbox", status=200, id=sandbox)["state"], "paused")
        self.assertEqual(self.call("pauseSandbox", status=409, id=sandbox)["error"]["code"], "conflict")
        self.assertEqual(self.call("resumeSandbox", status=200, id=sandbox)["state"], "running")

    def test_images_of_every_format(self):
        disk = bytes(100_000) + b"x" * 4096 + bytes(1_000_000)
        disk += bytes(-len(disk) % 4096)
        with tempfile.TemporaryDirectory() as folder:
            here = pathlib.Path(folder)
            (here / "raw").write_bytes(disk)
            subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", here / "raw", here / "qcow2"], check=True)
            self.call("importImage", raw=(here / "qcow2").read_bytes(), name="q", status=201)
            back = self.call("exportImage", name="q", status=200)
            self.assertEqual(back.rstrip(b"\0"), disk.rstrip(b"\0"))
            (here / "again").write_bytes(self.call("exportImage", name="q", query={"format": "qcow2"}, status=200))
            subprocess.run(["qemu-img", "check", "-q", here / "again"], check=True)
            subprocess.run(["qemu-img", "compare", "-q", "-f", "raw", "-F", "qcow2", here / "raw", here / "again"], check=True)
            # Said to be raw, its bytes are the disk.
            self.call("importImage", raw=(here / "qcow2").read_bytes(), name="r", query={"format": "raw"}, status=201)
            self.assertTrue(self.call("exportImage", name="r").startswith(b"QFI\xfb"))
        files = io.BytesIO()
        with tarfile.open(fileobj=files, mode="w:gz") as archive:
            member = tarfile.TarInfo("hello")
            member.size = 5
            archive.addfile(member, io.BytesIO(b"there"))
        image = self.call("importImage", raw=files.getvalue(), name="t", query={"disk_mib": 64}, status=201)
        self.assertEqual(image["bytes"], 64 << 20)
        back = self.call("exportImage", name="t", query={"format": "tar"}, status=200)
        with tarfile.open(fileobj=io.BytesIO(back)) as archive:
            self.assertEqual(archive.getnames(), [".", "./hello"])
            self.assertEqual(archive.extractfile("./hello").read(), b"there")
        layout = self.call("exportImage", name="t", query={"format": "oci"}, status=200)
        with tarfile.open(fileobj=io.BytesIO(layout)) as archive:
            index = json.load(archive.extractfile("index.json"))
            self.assertEqual(index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"], "t")
            self.assertIn(back, [archive.extractfile(m).read() for m in archive.getmembers() if m.isfile()])
        self.call("importImage", raw=layout, name="u", query={"disk_mib": 64}, status=201)
        self.assertEqual(self.call("exportImage", name="u", query={"format": "tar"}, status=200), back)
        for form in ("tar", "oci"):
            refused = self.call("exportImage", name="q", query={"format": form}, status=400)["error"]
            self.assertIn("does not begin with an ext4 file system", refused["message"])
            self.assertIn("Export it as raw", refused["hint"])
        for name in ("q", "r", "t", "u"):
            self.call("deleteImage", name=name, status=204)

    def test_images_that_are_refused_say_why(self):
        def reason(raw, status=400, **query):
            return self.call("importImage", raw=raw, name="bad", query=query, status=status)["error"]["message"]

        def tar_of(member):
            files = io.BytesIO()
            with tarfile.open(fileobj=files, mode="w") as archive:
                archive.addfile(member)
            return files.getvalue()
        self.assertIn("..", reason(tar_of(tarfile.TarInfo("../../etc/passwd"))))
        device = tarfile.TarInfo("dev/sda")
        device.type = tarfile.BLKTYPE
        self.assertIn("dev/sda", reason(tar_of(device)))
        backing = struct.pack(">4sIQIIQ", b"QFI\xfb", 3, 200, 5, 16, 1 << 20) + bytes(72)
        self.assertIn("backing file", reason(backing + bytes(1000)))
        self.assertIn("qcow2", reason(b"x" * 1000, format="qcow2"))
        self.assertIn("VMDK", reason(b"KDMV" + bytes(1000)))
        self.assertIn("vmdk", reason(b"x", format="vmdk"))
        self.assertIn("format tar", reason(b"x", format="dir"))
        self.assertIn("64 and 4194304", reason(b"x", format="tar", disk_mib=3))
        reason(b"no archive" * 100, format="tar", stream=1)
        reason(b"no archive" * 100, format="oci")
        self.call("exportImage", name="none", query={"format": "vmdk"}, status=404)
        self.assertEqual(self.call("listImages", status=200)["images"], [])

    def test_a_long_import_tells_how_far_it_is(self):
        noise = io.BytesIO()
        with tarfile.open(fileobj=noise, mode="w") as archive:
            member = tarfile.TarInfo("noise")
            member.size = 96 << 20
            archive.addfile(member, io.BytesIO(os.urandom(member.size)))
        events = self.call("importImage", raw=noise.getvalue(), name="long", query={"stream": 1}, status=200)
        self.assertEqual({e["type"] for e in events[:-1]}, {"progress"})
        self.assertEqual(events[-1]["image"]["name"], "long")
        self.call("deleteImage", name="long", status=204)

    def disks(self, box):
        made = self.call("commitDisk", {"name": "branch"}, id=box, status=201)
        self.assertEqual((made["image"]["name"], made["file_system"]), ("branch", "clean"))
        self.assertTrue(self.call("exportImage", name="branch", status=200).startswith(box.encode()))
        self.call("commitDisk", {"name": "branch"}, id=box, status=409)
        self.call("commitDisk", {"name": "../x"}, id=box, status=400)
        self.call("commitDisk", {}, id=box, status=400)
        self.call("commitDisk", {"name": "other"}, id="nothere", status=404)
        stuck = self.call("createSandbox", {"template": "stuck"}, status=201)["id"]
        self.assertIn("frozen", self.call("commitDisk", {"name": "stuck"}, id=stuck, status=201)["reason"])
        for name in ("branch", "stuck"):
            self.call("deleteImage", name=name, status=204)

    def test_errors_of_images(self):
        self.call("importImage", raw=b"", name="empty", status=400)
        self.call("importImage", raw=b"x", name=".hidden", status=400)
        self.call("importImage", raw=b"x", name="child", query={"parent": "nothere"}, status=404)
        self.call("importImage", raw=b"no zstd at all", headers={"Content-Encoding": "zstd"}, name="z", status=400)
        for operation in ("getImage", "exportImage", "deleteImage"):
            self.call(operation, name="nothere", status=404)
        self.call("importImage", raw=b"x", name="one", status=201)
        self.call("importImage", raw=b"x", name="one", status=409)
        self.call("importImage", raw=b"x" * 5000, name="two", status=201)
        self.call("diffImages", name="one", query={"with": "two"}, status=400)
        self.call("diffImages", name="one", status=400)
        for name in ("one", "two"):
            self.call("deleteImage", name=name, status=204)

    def test_errors(self):
        box = self.sandbox()
        stuck = self.call("createSandbox", {"template": "stuck"}, status=201)["id"]
        self.call("createSandbox", {"template": "nothere"}, status=404)
        self.call("createSandbox", {"template": "full"}, status=507)
        self.call("createSandbox", {"template": "base", "surprise": 1}, status=400)
        self.call("forkSandbox", {"n": 101}, id=box, status=400)
        self.call("forkSandbox", id=stuck, status=409)
        self.call("forkSandbox", {"strict": False}, id=stuck, status=201)
        self.call("forkSandbox", {"n": 2, "labels": {"fail": "0"}}, id=box, status=507)
        self.call("exec", {}, id=box, status=400)
        self.call("exec", {"command": "x"}, id="none", status=404)
        self.call("attachProcess", id=box, pid=4194304, status=404)
        self.call("attachProcess", id=box, pid=0, status=400)
        self.call("readFile", query={"path": "relative"}, id=box, status=400)
        self.call("readFile", query={"path": "/not/here"}, id=box, status=404)
        self.call("writeFile", raw=b"", query={"path": "/tmp/x", "mode": "888"}, id=box, status=400)
        self.call("uploadTemplateFile", raw=b"", name="mine", file="passwd", status=400)
        self.call("uploadTemplateFile", raw=b"no zstd at all", headers={"Content-Encoding": "zstd"}, name="mine", file="initrd", status=400)
        self.call("uploadTemplateFile", raw=b"", headers={"Content-Encoding": "gzip"}, name="mine", file="initrd", status=400)
        self.call("commitTemplate", {"files": {"vmlinux": {}}}, name="other", status=409)
        self.call("deleteTemplate", name="..", status=400)
        self.call("deleteTemplate", name="nothere", status=404)

    def test_request_examples_of_the_contract_are_what_the_server_takes(self):
        """A field the contract lists must not be refused as unknown, and the reverse."""
        box = self.sandbox()
        for operation, schema in {"createSandbox": "CreateRequest", "forkSandbox": "ForkRequest", "exec": "ExecRequest",
                                  "patchSandbox": "PatchRequest", "makeDirectory": "MkdirRequest", "moveFile": "MoveRequest",
                                  "resizeTerminal": "TerminalSize", "signalProcess": "SignalRequest"}.items():
            listed = set(resolved({"$ref": f"#/components/schemas/{schema}"})["properties"])
            answer = self.call(operation, {"no_such_field": 1}, id=box, pid=1, status=400)
            message = answer["error"]["message"]
            if "known are" not in message:  # a required one was missed first
                required = {"template": "base", "path": "/x", "from": "/x", "to": "/x", "rows": 1, "cols": 1, "signal": 1}
                body = {k: v for k, v in required.items() if k in listed}
                message = self.call(operation, {**body, "no_such_field": 1}, id=box, pid=1, status=400)["error"]["message"]
            self.assertEqual(set(re.findall(r"`(\w+)`", message.split("known are")[1])), listed, operation)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
