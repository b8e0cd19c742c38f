# Sourced by the other scripts: locates the checkout and installs what a script needs.
#
#   prepare_python run|dev|spark|docs   create .venv with the package (dev: plus test and lint tools; spark: plus PySpark, about
#                                       500 MB; docs: plus mkdocs)
#   need COMMAND PACKAGE...  require COMMAND; install its Debian packages when running as root, otherwise name them and stop
#   want COMMAND PACKAGE...  the same, but continue without it
#   want_headers             Python's headers, needed for the native modules; continue without them
#
# Takes a few milliseconds when everything is installed. Progress goes to stderr; stdout belongs to the script.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
venv=$root/.venv
parallel=(-n auto --maxprocesses 4 --dist loadfile) # pytest options for a whole suite: one process per core, at most four

say() { printf '%s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

prepare_python() {
  local wanted=$1
  if prepared "$wanted"; then return; fi
  # If two scripts start at the same time in one checkout, the second waits for the first.
  if command -v flock >/dev/null; then
    exec 9>"$root/.prepare.lock"
    flock 9
    if prepared "$wanted"; then exec 9>&-; return; fi
  fi
  make_venv
  say "installing the Python packages into .venv ..."
  install_python_packages "$wanted" >&2 \
    || fail "pip could not install the packages (see above); is the package index reachable?"
  state >"$venv/.prepared-$wanted"
  if command -v flock >/dev/null; then exec 9>&-; fi
}

# Development environments are locked: the versions and hashes of every dependency are in requirements/ (scripts/lock).
install_python_packages() {
  local pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
  case $1 in
    run) "${pip[@]}" --editable . ;;
    docs) "${pip[@]}" --editable '.[docs]' ;;
    *) "${pip[@]}" --require-hashes --requirement "requirements/$1.txt" && "${pip[@]}" --no-deps --no-build-isolation --editable . ;;
  esac
}

# Everything an environment depends on. The packages are installed again when any of it changes.
state() {
  printf '%s\n' "$root" "$(readlink -f "$venv/bin/python")" "$(command -v "${CC:-cc}" || true)" "${FIREARROW_PURE:-}"
  cat "$root/pyproject.toml" "$root/CMakeLists.txt" "$root"/requirements/*.txt "$root"/src/firearrow/*/_native.c | cksum
}

prepared() {
  local kind kinds=(spark)
  case $1 in
    run) kinds=(run dev spark) ;;
    dev) kinds=(dev spark) ;;
  esac
  for kind in "${kinds[@]}"; do
    if [ -x "$venv/bin/python" ] && [ -f "$venv/.prepared-$kind" ] && [ "$(cat "$venv/.prepared-$kind")" = "$(state)" ]; then
      return 0
    fi
  done
  return 1
}

make_venv() {
  local python version clear=()
  # An environment of another directory, or one whose interpreter was removed, must be created again.
  if [ -e "$venv" ]; then
    if "$venv/bin/python" -c 'import pip' 2>/dev/null && grep -qsF "$venv" "$venv/bin/pip"; then return; fi
    clear=(--clear)
  fi
  python=$(find_python)
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    install_packages "the Python modules venv and ensurepip" "python$version-venv"
  fi
  say "creating a virtual environment in .venv ..."
  "$python" -m venv "${clear[@]}" "$venv" >&2 || fail "could not create a virtual environment in $venv (see above)"
}

# PYTHON selects the interpreter. The system's own is preferred: distributions build it with profile-guided optimisation, which was
# measured to use 15 to 28 % less CPU per message.
find_python() {
  local name
  for name in ${PYTHON:-/usr/bin/python3 python3 python3.13 python3.12 python3.11}; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && can_make_venv "$name"; then
      echo "$name"
      return
    fi
  done
  fail "Python 3.11 or newer is needed; found: $("${PYTHON:-python3}" --version 2>&1 || true)"
}

# If venv or ensurepip is missing, root can install it from Debian's packages, but only for Debian's own interpreter.
can_make_venv() {
  "$1" -c 'import ensurepip, venv' 2>/dev/null && return
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    [ "$(readlink -f "$(command -v "$1")")" = "$(readlink -f /usr/bin/python3)" ]
  else
    [ "$1" != /usr/bin/python3 ]  # try the others first; if none qualifies, the error names the package
  fi
}

need() {
  local name=$1
  command -v "$name" >/dev/null || install_packages "the command $name" "${@:2}"
}

want() {
  local name=$1
  command -v "$name" >/dev/null || (install_packages "the command $name" "${@:2}") || say "continuing without $name"
}

want_headers() {
  local headers
  headers=$("$(find_python)" -c 'import sysconfig; print(sysconfig.get_path("include"))')
  [ -f "$headers/Python.h" ] || (install_packages "Python's headers" python3-dev) || say "continuing without the native modules"
}

install_packages() {
  local missing=$1
  shift
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    fail "missing: $missing; on Debian: apt-get install $*"
  fi
  say "installing $* (missing: $missing) ..."
  local output
  if ! output=$(apt_install "$@" 2>&1 </dev/null); then
    say "$output"
    fail "missing: $missing; apt-get could not install $* (see above)"
  fi
}

apt_install() {
  # Package lists of a fresh machine are empty or old. A list that cannot be fetched is not fatal.
  apt-get update || true
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "$@"
}
