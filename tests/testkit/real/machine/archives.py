"""Archives of our own, unpacked by every Python that we support. Not for archives of strangers."""

import io
import tarfile
from pathlib import Path


def unpack_tar(archive: bytes, folder: Path) -> None:
    """Unpack into the folder. The filter that newer Pythons ask for came with 3.11.4."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        if hasattr(tarfile, "data_filter"):
            files.extractall(folder, filter="data")
        else:
            files.extractall(folder)
