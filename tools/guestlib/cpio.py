"""Writes the archives that a Linux kernel unpacks as its first file system (cpio, format "newc").

Every file belongs to root and has the same date, so the same input gives the same archive. The kernel unpacks
archives that follow each other one after the other, the later over the earlier.
"""
import os
import stat

ALIGN = 4
END = "TRAILER!!!"


class Archive:
    """An archive under construction; folders are made as they are needed."""

    def __init__(self, path):
        self.file = open(path, "wb")
        self.count = 0
        self.folders = set()

    def close(self):
        self._entry(END, 0, b"")
        self.file.close()

    def _pad(self):
        self.file.write(b"\0" * (-self.file.tell() % ALIGN))

    def _entry(self, name, mode, content, size=None):
        self.count += 1
        encoded = name.encode() + b"\0"
        fields = (self.count, mode, 0, 0, 1, 0, len(content) if size is None else size, 0, 0, 0, 0, len(encoded), 0)
        self.file.write(b"070701" + b"".join(b"%08X" % field for field in fields) + encoded)
        self._pad()
        self.file.write(content)

    def folder(self, name):
        name = name.strip("/")
        if name and name not in self.folders:
            self.folder(os.path.dirname(name))
            self.folders.add(name)
            self._entry(name, stat.S_IFDIR | 0o755, b"")

    def text(self, name, content, mode=0o644):
        self.folder(os.path.dirname(name))
        self._entry(name.strip("/"), stat.S_IFREG | mode, content.encode())
        self._pad()

    def link(self, name, target):
        self.folder(os.path.dirname(name))
        self._entry(name.strip("/"), stat.S_IFLNK | 0o777, target.encode())
        self._pad()

    def copy(self, name, path):
        """A file of this machine; what a link names, not the link."""
        self.folder(os.path.dirname(name))
        with open(path, "rb") as file:
            content = file.read()
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        self._entry(name.strip("/"), stat.S_IFREG | mode, content)
        self._pad()

    def tree(self, name, path):
        """A folder with all that is in it, links as links."""
        self.folder(name)
        for here, folders, files in os.walk(path):
            folders.sort()
            inside = os.path.join(name, os.path.relpath(here, path))
            for entry in sorted(folders + files):
                full, target = os.path.join(here, entry), os.path.normpath(os.path.join(inside, entry))
                if os.path.islink(full):
                    self.link(target, os.readlink(full))
                elif entry in files:
                    self.copy(target, full)
                else:
                    self.folder(target)
