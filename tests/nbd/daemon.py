"""A real daemon, as the tests start, kill and start it again. Serving disks needs neither KVM nor root."""

import os
import subprocess

from server import BIN, run, wait_until


class Daemon:
    """`images`: {name: raw file}, imported at the first start."""

    def __init__(self, folder, images):
        self.folder, self.images = folder, images
        self.state, self.runtime = folder / "state", folder / "runtime"
        self.socket = self.runtime / "chunk.sock"
        self.environment = {**os.environ, "RAMET_STATE": str(self.state), "RAMET_RUNTIME": str(self.runtime),
                            "RAMET_URL": f"unix://{self.runtime}/rametd.sock"}
        self.process = None

    def start(self):
        with open(self.folder / "rametd.log", "ab") as log:
            self.process = subprocess.Popen([BIN / "rametd", "--state", self.state, "--runtime", self.runtime], stdout=log, stderr=log)
        wait_until(self.answers, "rametd answers")
        for name, path in self.images.items():
            run(BIN / "ramet", "image", "import", path, name, env=self.environment)
        self.images = {}
        return self

    def answers(self):
        assert self.process.poll() is None, (self.folder / "rametd.log").read_text()
        return subprocess.run([BIN / "ramet", "image", "ls"], env=self.environment, capture_output=True, check=False).returncode == 0

    def kill(self):
        self.process.kill()
        self.process.wait()

    def replace_image(self, name, path):
        """While it is not running."""
        store = (BIN / "ramet-store", "--store", self.state / "store")
        run(*store, "rm", name)
        run(*store, "import", path, name)

    def parameters(self, name):
        return {"image": name, "socket": self.socket}

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()
