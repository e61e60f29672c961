# Sourced by the other scripts, from the repository root: makes virtual environments, once per change of what goes into them.

# The first Python that dethpc runs on; PYTHON names another.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python3.10}; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "No Python >= 3.10 with its venv module. On Debian: apt-get install python3-venv. PYTHON=... names another Python." >&2
    return 1
}

# make_venv FOLDER NAME REQUIREMENT...: the requirements are installed there unless that was done with the same input files.
make_venv() {
    local folder=$1 name=$2 python stamp quiet=--quiet
    shift 2
    stamp=$(cat pyproject.toml constraints.txt <(echo "$@") | cksum)
    [[ $(cat "$folder/.installed-$name" 2>/dev/null) == "$stamp" ]] && return
    echo "Installing into $folder: $* (a few minutes the first time)"
    if ! "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
        python=$(find_python) || return
        rm -rf "$folder"
        "$python" -m venv "$folder" || return
        # The pip that Pythons of 2023 bring works for minutes on what a new one resolves in seconds.
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade pip || return
    fi
    if [[ -t 1 ]]; then quiet=; fi # somebody who waits sees what is collected and how far each download is
    "$folder/bin/python" -m pip install ${quiet:+"$quiet"} --disable-pip-version-check "$@" || return
    echo "$stamp" >"$folder/.installed-$name"
}

TORCH=2.13.0

dev_venv() {
    make_venv .venv dev -c constraints.txt -e '.[dev]' torch==$TORCH
}

WHEELS=$HOME/.cache/dethpc/wheels

# The PySlurm that scripts/build-pyslurm made for this Python, if it did.
pyslurm_wheel() {
    local tag
    tag=$(python_tag "$(find_python)") || return
    compgen -G "$WHEELS/pyslurm-*-$tag-*.whl"
}

HOROVOD=0.28.1

# The Horovod that scripts/build-horovod made for the torch and the Python of .venv, if it did.
horovod_wheel() {
    local tag
    tag=$(python_tag .venv/bin/python) || return
    compgen -G "$WHEELS/torch-$TORCH/horovod-$HOROVOD-$tag-*.whl"
}

python_tag() {
    "$1" -c 'import sys; print("cp%d%d" % sys.version_info[:2])'
}
