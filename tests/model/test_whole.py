"""whole.py: what stands under a path at each moment, and that only regular files are replaced."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from paths import ROOT

from model.whole import whole_file


def write(path: Path, content: str) -> None:
    with whole_file(path, ".txt") as whole:
        assert whole.suffix == ".txt"
        whole.write_text(content)


def test_what_was_there_is_there_until_all_is_written(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")
    with whole_file(path) as whole:
        whole.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert [*tmp_path.iterdir()] == [path]


def test_what_was_there_is_kept_where_writing_fails(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")

    def fail():
        with whole_file(path) as whole:
            whole.write_text("half")
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        fail()
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path, exists):
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
    target, link, other = (tmp_path / name for name in ("a/x", "b/y", "c/z"))
    link.symlink_to("../a/x")
    other.symlink_to(link)
    if exists:
        target.write_text("old")
    write(other, "new")
    assert target.read_text() == "new"
    assert not target.is_symlink()
    assert (os.readlink(link), os.readlink(other)) == ("../a/x", str(link))
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["a", "b", "c", "x", "y", "z"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o444])
def test_a_file_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "x"
    path.write_text("old")
    path.chmod(mode)
    write(path, "new")
    assert (stat.S_IMODE(path.stat().st_mode), path.read_text()) == (mode, "new")


def test_a_new_file_has_the_mode_that_files_have(tmp_path):
    write(tmp_path / "x", "new")
    (tmp_path / "y").touch()
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "y").stat().st_mode


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_a_file_keeps_its_owner(tmp_path):
    (tmp_path / "x").touch()
    os.chown(tmp_path / "x", 1234, 5678)
    write(tmp_path / "x", "new")
    assert ((tmp_path / "x").stat().st_uid, (tmp_path / "x").stat().st_gid) == (1234, 5678)


def test_a_fifo_gets_the_content_and_stays_one(tmp_path):
    fifo, link = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    link.symlink_to(fifo)
    with ThreadPoolExecutor(1) as pool:
        for path in (fifo, link):
            read = pool.submit(fifo.read_text)
            write(path, "x" * 100_000)
            assert read.result() == "x" * 100_000
    assert fifo.is_fifo()
    assert link.is_symlink()
    assert len([*tmp_path.iterdir()]) == 2


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="only root makes devices")
@pytest.mark.parametrize(("minor", "fails"), [(3, False), (7, True)], ids=["null", "full"])
def test_a_device_stays_one(tmp_path, minor, fails):
    """Replacing it, which root may, left a regular file in the place of /dev/null."""
    device = tmp_path / "device"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        device.open("wb").close()
    except OSError:
        pytest.skip("no devices can be made here")
    if fails:
        with pytest.raises(OSError, match="No space left"):
            write(device, "x" * 100_000)
    else:
        write(device, "new")
    assert device.is_char_device()
    assert [*tmp_path.iterdir()] == [device]


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1"])
def test_standard_output_gets_the_content(tmp_path, name):
    """Also where it is a file, in which others may have written already."""
    script = f"""
from pathlib import Path
from model.whole import whole_file
with whole_file(Path({name!r})) as whole:
    whole.write_text("new")
"""
    run = [sys.executable, "-c", script]
    assert subprocess.run(run, cwd=ROOT, capture_output=True, check=True).stdout == b"new"
    with (tmp_path / "x").open("wb") as file:
        before = os.fstat(file.fileno()).st_ino
        subprocess.run(run, cwd=ROOT, stdout=file, check=True)
    assert (tmp_path / "x").read_text() == "new"
    assert (tmp_path / "x").stat().st_ino == before


def test_threads_that_write_one_file_do_not_share_a_name(tmp_path):
    together = Barrier(4)

    def run(number):
        with whole_file(tmp_path / "x") as whole:
            whole.write_text(str(number))
            together.wait(timeout=10)
            return whole

    with ThreadPoolExecutor(4) as pool:
        names = [*pool.map(run, range(4))]
    assert len(set(names)) == 4
    assert (tmp_path / "x").read_text() in set("0123")
    assert [each.name for each in tmp_path.iterdir()] == ["x"]


def test_a_name_as_long_as_names_can_be(tmp_path):
    path = tmp_path / ("é" * 127)
    write(path, "new")
    assert path.read_text() == "new"


def test_where_no_file_can_be(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a directory; name a file in it"):
        write(tmp_path, "new")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "x")
    for path in (tmp_path / "nowhere" / "x", tmp_path / "link"):
        with pytest.raises(FileNotFoundError, match="nowhere is no directory, so x can't be saved"):
            write(path, "new")
