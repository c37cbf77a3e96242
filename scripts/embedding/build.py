"""Builds a shared library from `aexec.embedding` for programs in C: `python scripts/embedding/build.py FOLDER`.

It needs cffi, a C compiler, and a Python that has a shared library itself.  The declarations are those of `aexec.h`;
what they do is in `shim.py`, which becomes part of the library.  docs/embedding-c.md says how programs are linked.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

import cffi

HERE = Path(__file__).parent
NAME = "libaexec"
_BEGIN, _END = "/* The declarations begin here", "/* The declarations end here"

# If Python or aexec cannot be started, cffi prints why and makes every function return 0, which would mean success: so
# the call that every program begins with checks that there is a session.
_SOURCE = """
#include <stdlib.h>
#include <string.h>
#include "aexec.h"

static int32_t aexec_begin_session(aexec_bytes graph_def, aexec_bytes config, int64_t *session, char **message);

CFFI_DLLEXPORT int32_t aexec_new_session(aexec_bytes graph_def, aexec_bytes config, int64_t *session, char **message) {
  static const char why[] = "Python or aexec could not be started: the standard error output says why";
  if (message) *message = NULL;
  *session = 0;
  int32_t code = aexec_begin_session(graph_def, config, session, message);
  if (code || *session) return code;
  if (message && (*message = malloc(sizeof why))) memcpy(*message, why, sizeof why);
  return 14; /* UNAVAILABLE */
}

CFFI_DLLEXPORT void aexec_free(void *data) { free(data); }
"""


def declarations(header: str) -> str:
    """Return the part of the header that is plain C, as cffi reads it: types, then functions."""
    begin, end = header.index(_BEGIN), header.index(_END)
    return header[header.index("*/", begin) + 2 : end]


def build(folder: Path) -> Path:
    """Compile the library into `folder`, copy the header there, and return the library's path."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "aexec.h", folder)
    ffi = cffi.FFI()
    text = declarations((HERE / "aexec.h").read_text(encoding="utf-8"))
    types, _, functions = text.partition("/* Open a session")
    ffi.cdef(f"{types} void *malloc(size_t size);")
    ffi.embedding_api(f"/* Open a session{functions}".replace("aexec_new_session", "aexec_begin_session"))
    library_folder = sysconfig.get_config_var("LIBDIR")
    ffi.set_source(
        NAME.removeprefix("lib") + "_embedding",
        _SOURCE,
        include_dirs=[str(folder)],
        library_dirs=[library_folder],
        runtime_library_dirs=[] if sys.platform == "win32" else [library_folder],
    )
    ffi.embedding_init_code((HERE / "shim.py").read_text(encoding="utf-8"))
    return Path(ffi.compile(tmpdir=str(folder), target=f"{NAME}.*"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/embedding/build.py FOLDER")
    print(build(Path(sys.argv[1]).absolute()))
