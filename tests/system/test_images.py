"""Images of sandboxes' disks: what a branch wrote is in its image and nowhere else, in a file system that is whole."""

import contextlib
import subprocess
import tarfile

WORDS = "written in a branch\n"


def ramet(*words):
    return subprocess.run(["ramet", *map(str, words)], check=True, stdout=subprocess.PIPE, timeout=600).stdout.decode()


@contextlib.contextmanager
def image_of(sandbox, name):
    """What the commit said; the image is there meanwhile."""
    answer = sandbox.client.call("POST", f"{sandbox.path}/image", {"name": name}, timeout=600)
    try:
        yield answer
    finally:
        sandbox.client.call("DELETE", f"/v1/images/{name}")


def debugfs(disk, command):
    done = subprocess.run(["debugfs", "-R", command, disk], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    return done.stdout.decode() + done.stderr.decode()


def test_the_disk_of_a_branch_becomes_an_image_of_its_own(sandbox, tmp_path):
    qcow2, raw, tar = (tmp_path / f"branch.{form}" for form in ("qcow2", "raw", "tar"))
    [child], _ = sandbox.fork()
    with child:
        child.write("/home/user/branch.txt", WORDS.encode())
        # It writes on while its disk is stored.
        child.start("i=0; while :; do i=$((i+1)); echo $i > counter.new; mv counter.new counter; done")
        child.wait_for("test -s counter")
        with image_of(child, "branch") as made, image_of(sandbox, "parent"):
            assert made["file_system"] == "clean", made
            before = int(child.run("cat counter"))
            child.wait_for(f"test $(cat counter) -gt {before}")
            assert sandbox.client.call("GET", "/v1/images/parent/diff", **{"with": "branch"})["changed_bytes"] > 0
            assert sandbox.exec("test -e branch.txt")["exit_code"] == 1
            ramet("image", "export", "branch", qcow2)
            ramet("image", "export", "branch", tar)
            assert 0 < made["image"]["unique_bytes"] < 32 << 20  # its template is not stored again
    subprocess.run(["qemu-img", "check", "-q", qcow2], check=True, timeout=120)
    subprocess.run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", qcow2, raw], check=True, timeout=300)
    print(subprocess.run(["/sbin/e2fsck", "-fn", raw], check=True, stdout=subprocess.PIPE, timeout=300).stdout.decode())
    assert WORDS in debugfs(raw, "cat /home/user/branch.txt")
    with tarfile.open(tar) as files:
        assert files.extractfile("./home/user/branch.txt").read() == WORDS.encode()
