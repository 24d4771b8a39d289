"""Where a machine's files are, which machine runs, and who may change that (one at a time)."""

import contextlib
import fcntl
import json
import os
import pathlib
import signal
import time


def state_dir():
    """The contract of every Ramet program: $RAMET_STATE, else /var/lib/ramet for root, else ~/.local/share/ramet."""
    if os.environ.get("RAMET_STATE"):
        return pathlib.Path(os.environ["RAMET_STATE"]).absolute()
    if os.geteuid() == 0:
        return pathlib.Path("/var/lib/ramet")
    return pathlib.Path(os.environ.get("XDG_DATA_HOME", pathlib.Path.home() / ".local/share")) / "ramet"


class Machine:
    """The files in STATE/machine. `document` is machine.json: what was started last, and how to reach it."""

    def __init__(self, state=None):
        self.folder = (state or state_dir()) / "machine"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)  # console socket and keys are root's door into the machine

    def path(self, name):
        return self.folder / name

    @contextlib.contextmanager
    def lock(self):
        with open(self.path("lock"), "w", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def document(self):
        try:
            return json.loads(self.path("machine.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None

    def write_document(self, document):
        part = self.path("machine.json.part")
        part.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        part.rename(self.path("machine.json"))

    def forget(self):
        for name in ("machine.json", "console.sock"):
            self.path(name).unlink(missing_ok=True)

    def running(self):
        """machine.json if its process still lives, else None. A pid alone proves nothing: it may have been given to another."""
        document = self.document()
        if document and start_time(document["pid"]) == document["start_time"]:
            return document
        return None


def start_time(pid):
    """Field 22 of /proc/PID/stat (ticks since boot); None if there is no such process or it is a zombie."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2:].split()
    return None if fields[0] in "ZX" else int(fields[19])


def signal_process(document, number):
    """Sends a signal to exactly the process machine.json names; False if it is gone."""
    try:
        fd = os.pidfd_open(document["pid"])
    except ProcessLookupError:
        return False
    try:
        if start_time(document["pid"]) != document["start_time"]:
            return False
        signal.pidfd_send_signal(fd, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)


def wait_gone(document, seconds):
    """True once the process has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(document["pid"], os.WNOHANG)
        if start_time(document["pid"]) != document["start_time"]:
            return True
        time.sleep(0.1)
    return False
