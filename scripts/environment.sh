# Sourced by the other scripts: a virtual environment in .venv with this project installed into it.
# Sets $python.  Installs again only when pyproject.toml, the loops in C or the wanted extras change.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3.14 python3.13 python3.12 python3.11 python3 python; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "aexec needs Python 3.11 or newer; none was found on PATH (set PYTHON to name one)" >&2
  return 1
}

# pip_install ARGUMENT...: shows what pip downloads: on a terminal with its own bars, else a line for each package.
pip_install() {
  local command=("$python" -m pip install --disable-pip-version-check --no-color "$@")
  if [ -t 2 ]; then
    "${command[@]}" >&2
  else
    "${command[@]}" 2>&1 | awk '/^(Collecting|  *Downloading|Building|Installing|ERROR|error)/ { print "  " $0; fflush() }' >&2
  fi
}

# make_environment [EXTRA]: EXTRA is an optional dependency group, as in pyproject.toml.
make_environment() {
  local extra=${1:-} stamp=.venv/.installed began=$SECONDS sources
  sources=$(cat pyproject.toml aexec/native/*.[ch] | cksum)
  if [ ! -x .venv/bin/python ]; then
    "$(find_python)" -m venv .venv
  fi
  python=$root/.venv/bin/python
  if [ "$(cat "$stamp" 2>/dev/null)" != "$extra $sources" ] && [ "$(cat "$stamp.dev" 2>/dev/null)" != "dev $sources" ]; then
    echo "installing aexec${extra:+[$extra]} into .venv ..." >&2
    pip_install --editable ".${extra:+[$extra]}"
    echo "installed after $((SECONDS - began)) s" >&2
    echo "$extra $sources" >"$stamp"
    [ "$extra" != dev ] || echo "dev $sources" >"$stamp.dev"
  fi
}

# make_tensorflow_environment [REQUIREMENT...]: TensorFlow in .venv-tensorflow, and these beside it, without what they
# require: TensorFlow brings that.  Sets $tensorflow_python; $TENSORFLOW_PYTHON names one that has all of them already.
make_tensorflow_environment() {
  tensorflow_python=${TENSORFLOW_PYTHON:-}
  [ -z "$tensorflow_python" ] || return 0
  tensorflow_python=$root/.venv-tensorflow/bin/python
  if [ ! -x "$tensorflow_python" ]; then
    "$(find_python)" -m venv .venv-tensorflow
    "$tensorflow_python" -m pip install --quiet --disable-pip-version-check 'tensorflow-cpu==2.21.*'
  fi
  [ $# -eq 0 ] || "$tensorflow_python" -m pip install --quiet --disable-pip-version-check --no-deps "$@"
}
