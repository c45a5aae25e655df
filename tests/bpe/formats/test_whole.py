"""formats/whole.py: what stands at a path before, while and after it is written, whatever it is."""

import os
import stat
import subprocess
import sys
import threading

import pytest
from paths import ROOT

from bpe.formats.whole import check_writable, whole_file


def write(path, text="new"):
    with whole_file(path) as temporary:
        temporary.write_text(text)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")

    def write_half():
        with whole_file(path) as temporary:
            temporary.write_text("half")
            assert path.read_text() == "old"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert path.read_text() == "old"
    write(path)
    write(str(tmp_path / "b"))
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a", "b"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "file", tmp_path / "link"
    link.symlink_to("folder/file")
    for text in ("made", "replaced"):
        write(link, text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert names(tmp_path / "folder") == ["file"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_file_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "a"
    path.touch()
    path.chmod(mode)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_usual_mode(tmp_path):
    write(tmp_path / "a")
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs here")
def test_a_fifo_is_written_to(tmp_path):
    fifo, read = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()))
    reader.start()
    check_writable(fifo)
    write(fifo)
    reader.join(10)
    assert read == ["new"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert names(tmp_path) == ["fifo"]


def test_a_device_is_written_to(tmp_path):
    null = tmp_path / "null"
    try:
        os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        null.open("w").close()
    except (AttributeError, OSError) as error:
        pytest.skip(f"no device can be made here: {error}")
    check_writable(null)
    write(null)
    assert stat.S_ISCHR(null.stat().st_mode)
    assert names(tmp_path) == ["null"]


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_standard_output_is_written_to(tmp_path, name):
    """Also where it is a file that has something in it already."""
    script = (
        "from bpe.formats.whole import whole_file\nprint('before')\n"
        f"with whole_file({name!r}) as path: path.write_text('new\\n')\nprint('after')"
    )
    out = tmp_path / "out"
    out.write_text("older\n")
    with out.open("a") as file:
        subprocess.run([sys.executable, "-c", script], cwd=ROOT, stdout=file, check=True)
    assert out.read_text() == "older\nbefore\nnew\nafter\n"
    assert names(tmp_path) == ["out"]


def test_threads_do_not_take_each_others_files(tmp_path):
    path, errors = tmp_path / "a", []

    def write_often(text):
        try:
            for _ in range(50):
                write(path, text)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=write_often, args=(name * 1000,)) for name in "xyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert path.read_text() in ("x" * 1000, "y" * 1000, "z" * 1000)
    assert names(tmp_path) == ["a"]


def test_a_name_as_long_as_names_can_be(tmp_path):
    for name in ("x" * 255, "é" * 127):
        write(tmp_path / name)
        assert (tmp_path / name).read_text() == "new"


def test_what_cant_be_written_is_said_before(tmp_path):
    with pytest.raises(OSError, match="it is a directory"):
        check_writable(tmp_path)
    with pytest.raises(OSError, match="can't be written"):
        check_writable(tmp_path / "none" / "a")
    check_writable(tmp_path / "a")
    assert names(tmp_path) == []
