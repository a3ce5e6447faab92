# Makes the virtual environment of ./demo and ./check. Sourced by them, in the folder of the checkout.
#
#   . tools/environment.sh
#   environment spark [PACKAGE...]   makes $venv with the extra `spark`; at once if nothing has changed
#   environment alone [PACKAGE...]   with the package and what it always needs; extras can follow
#
# Packages of Debian that are missing are installed (as root), or it says the line to type and stops.
#
# Given by the user: PYTHON (default python3), STRANDLINE_VENV (default .venv), STRANDLINE_USE_UV=0.
# Sets: python (an absolute path, or empty if uv is to bring one), venv, uv (empty if it is not there).
#
# Nothing half made is used: an environment carries the file `unfinished` while it is made, and one
# that still has it is made again from nothing. `made-for-EXTRA` holds what it was made from.

say() { echo "$(basename "$0"): $*" >&2; }
stop() { say "$@"; exit 1; }

# Java takes the names of files from the locale, and in C it knows only ASCII.
case "$(locale charmap 2>/dev/null || true)" in
  UTF-8) ;;
  *) if locale -a 2>/dev/null | grep -qixE 'C\.utf-?8'; then export LC_ALL=C.UTF-8; fi ;;
esac

venv=${STRANDLINE_VENV:-.venv}
uv=
if [ "${STRANDLINE_USE_UV:-1}" != 0 ]; then uv=$(command -v uv || true); fi

# What is there: a Python that is new enough, or nothing.
_usable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
python=$(command -v "${PYTHON:-python3}" || true)
_found=$python
if [ -n "$python" ] && ! _usable "$python"; then python=; fi

_need() {
  [ $# -gt 0 ] || return 0
  if ! command -v apt-get >/dev/null; then
    stop "missing: what Debian calls $*. Install it in this system's way, and run this again."
  elif [ "$(id -u)" = 0 ]; then
    say "installing $*"
    DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes _apt "$@" || stop "apt-get could not install $*; see above."
  else
    say "missing: $*. Type this line, and then the same command again:"
    say "  sudo apt-get update && sudo apt-get install -y $*"
    exit 1
  fi
}

_apt() {
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# Packages without which Python makes no virtual environment here, one a line.
_missing_for_python() {
  [ -z "$uv" ] || return 0
  if [ -z "$python" ]; then
    if [ -n "$_found" ]; then
      stop "Python 3.11 or later is needed; $_found is $("$_found" -V 2>&1 || true)." \
        "Name another with PYTHON=..., or install uv (https://docs.astral.sh/uv), which brings one."
    fi
    echo python3
    echo python3-venv
  elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    case "$python" in
      /usr/bin/python3 | /bin/python3) echo python3-venv ;;
      *) "$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])' ;;
    esac
  fi
}

# What an environment depends on. Python files of the package do not count: they are used in place.
_made_from() {
  local source
  pwd -P
  [ -z "$python" ] || "$python" -c 'import sys; print(sys.version, sys.base_prefix)'
  command -v cc || echo "no compiler"
  echo "kernels required: ${STRANDLINE_REQUIRE_KERNELS:-0}"
  cat pyproject.toml setup.py
  for source in src/strandline/records/_kernels/*.p[xy]? src/strandline/records/_kernels/*.h; do
    if [ -e "$source" ]; then cat "$source"; fi
  done
}

_has() { # Whether the environment has this extra, made from the same.
  local name
  [ -x "$venv/bin/python" ] && [ ! -e "$venv/unfinished" ] || return 1
  for name in "$1" test; do # the extra `test` holds all others
    if _was_made "$name" "$2"; then return 0; fi
  done
  return 1
}

_was_made() { [ -e "$venv/made-for-$1" ] && [ "$(cat "$venv/made-for-$1")" = "$2" ]; }

# environment EXTRA [PACKAGE...]: have $venv with the package (in place) and this extra, and these of Debian.
environment() {
  local extra=$1 from missing
  shift
  missing=$(_missing_for_python) || exit 1
  # shellcheck disable=SC2086 # one word for each package
  _need $missing "$@"
  if [ -n "$missing" ] && [ -z "$python" ]; then
    python=$(command -v python3)
    _usable "$python" || stop "Python 3.11 or later is needed; this system's is $("$python" -V 2>&1)."
  fi
  # One at a time. The folder itself is what is locked, so that no file is left.
  if command -v flock >/dev/null; then exec 9<.; flock 9 || true; fi
  from=$(_made_from | cksum)
  _has "$extra" "$from" || _make "$extra" "$from"
  if command -v flock >/dev/null; then exec 9<&-; fi
}

_make() {
  local extra=$1 from=$2
  if [ -e "$venv" ] && ! _is_ours_and_whole; then
    [ -e "$venv/pyvenv.cfg" ] || [ -e "$venv/unfinished" ] || [ -z "$(ls -A "$venv")" ] ||
      stop "$venv is something else than a virtual environment. Name another by STRANDLINE_VENV=..."
    rm -rf "${venv:?}"
  fi
  say "making the virtual environment $venv: fetching packages takes a minute or a few"
  export DIST_EXTRA_CONFIG=$PWD/tools/building.cfg
  mkdir -p "$venv"
  : >"$venv/unfinished"
  if [ -n "$uv" ]; then
    [ -e "$venv/bin/python" ] || _uv_venv || _give_up
  else
    [ -e "$venv/bin/python" ] || "$python" -m venv "$venv" || _give_up
  fi
  if [ "$extra" = alone ]; then
    set -- -e .
  elif _was_made alone "$from"; then # it may be in use meanwhile, and is not built again
    _needs "$extra" >"$venv/needs-$extra" || _give_up
    set -- -r "$venv/needs-$extra"
  else
    set -- -e ".[$extra]"
  fi
  if [ -n "$uv" ]; then
    if [ "$extra" = test ]; then set -- "$@" pip; fi # which a test calls
    _uv pip install -q --python "$venv/bin/python" --reinstall-package strandline "$@" || _give_up
  else
    # Python compiles what it imports. Of all that is installed that is a small part.
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --use-pep517 --no-compile "$@" || _give_up
  fi
  printf '%s\n' "$from" >"$venv/made-for-$extra"
  rm "$venv/unfinished"
}

_needs() { # EXTRA: the packages of an extra in pyproject.toml, and of those that it holds, one a line.
  "$venv/bin/python" -c '
import re, sys, tomllib

def needs(extra):
    for each in extras[extra]:
        held = re.fullmatch(r"strandline\[(.*)\]", each)
        if held:
            for name in held[1].split(","):
                yield from needs(name)
        else:
            yield each

with open("pyproject.toml", "rb") as file:
    extras = tomllib.load(file)["project"]["optional-dependencies"]
print(*needs(sys.argv[1]), sep="\n")' "$1"
}

_uv_venv() { # uv refuses a folder that is there
  rm -rf "${venv:?}"
  _uv venv -q --python "${python:->=3.11}" "$venv" && : >"$venv/unfinished"
}

# uv trusts the authorities that it brings, pip those of the system: of a company's proxy only the system knows.
_uv() {
  local printed
  if printed=$("$uv" "$@" 2>&1); then return; fi
  case $printed in
    *"peer certificate"*)
      say "uv does not trust the certificate of the package index: trying with the certificates of this system"
      UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1 "$uv" "$@"
      ;;
    *) printf '%s\n' "$printed" >&2; return 1 ;;
  esac
}

_give_up() {
  stop "$venv could not be made; see above. What was begun is not used: the next time starts anew."
}

_is_ours_and_whole() { # It runs, stands where it was made, and was not interrupted.
  [ ! -e "$venv/unfinished" ] && [ -e "$venv/pyvenv.cfg" ] &&
    "$venv/bin/python" -c 'import sys; from os.path import samefile; sys.exit(not samefile(sys.prefix, sys.argv[1]))' \
      "$venv" 2>/dev/null && { [ -n "$uv" ] || "$venv/bin/python" -m pip --version >/dev/null 2>&1; }
}
