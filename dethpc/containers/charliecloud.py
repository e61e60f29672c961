"""Charliecloud: ``ch-run`` on an unpacked folder, as an ordinary user, in a user namespace.

``ch-run --bind`` knows no read-only mounts and makes no mount points in an image that others use, too. So the root directory is put
together first, in a mount namespace of the task's own: an overlay in memory above the image, which the task may write to and which
is gone with it, and the binds in it (user namespaces may mount an overlay since Linux 5.11; before that mount points have to be in
the image). ``unshare``, ``bash`` and ``ch-run`` take each other's place: the process that the task is becomes the command.
"""

from __future__ import annotations

from collections.abc import Sequence

from dethpc.containers.base import PATH, Bind, Env, Extras, Gpus, Wrapped

# $1 image, $2 user id, $3 group id, $4 number of binds, four words for each (source, target, ro or rw, propagation), $n binary,
# $n+1 number of options, those, then the command.
_ROOT = r"""
fail() { echo "dethpc: charliecloud: $1" >&2; exit 125; }
image=$1 user=$2 group=$3 count=$4 base=
shift 4
for base in /boot /media /srv /mnt /opt; do [ ! -d "$base" ] || break; done
cd / && mount -n -t tmpfs -o mode=700 tmpfs "$base" || fail "no memory can be mounted on $base"
mkdir "$base/upper" "$base/work" "$base/lower" "$base/root"
mount -n --rbind "$image" "$base/lower" || fail "$image cannot be mounted"
root=$base/root
layers=lowerdir=$base/lower,upperdir=$base/upper,workdir=$base/work,userxattr
mount -n -t overlay -o "$layers" overlay "$root" 2>/dev/null || mount -n --rbind "$image" "$root" || fail "$image cannot be mounted"
inside() { # the path in the image, through its links, none of which leads out of it
    local rest=${1#/} at= part link n=0
    while [ -n "$rest" ]; do
        part=${rest%%/*}
        case $rest in */*) rest=${rest#*/} ;; *) rest= ;; esac
        case $part in '' | .) continue ;; ..) at=${at%/*}; continue ;; esac
        if [ -L "$root$at/$part" ]; then
            n=$((n + 1)); [ "$n" -lt 40 ] || fail "$1: too many links in the image"
            link=$(readlink "$root$at/$part"; echo .); link=${link%??}
            case $link in /*) at= ;; esac
            rest=$link/$rest
        else
            at=$at/$part
        fi
    done
    place=$root$at
}
for file in /etc/localtime; do
    [ ! -e "$file" ] || { rm -f "$root$file" && cp -L "$file" "$root$file"; } 2>/dev/null
done
while [ "$count" -gt 0 ]; do
    count=$((count - 1))
    # ch-run shows the node's /tmp, with whatever is mounted there in this namespace.
    case $2 in /tmp | /tmp/*) place=$2 ;; *) inside "$2" ;; esac
    [ -e "$1" ] || fail "this node has no $1, which is to be bound"
    if [ -d "$1" ]; then mkdir -p "$place"; else mkdir -p "${place%/*}" && { [ -e "$place" ] || : >"$place"; }; fi 2>/dev/null
    [ -e "$place" ] || fail "the image has no $2, where $1 is to be seen, and this kernel cannot make it"
    mount -n --rbind "$1" "$place" || fail "$1 cannot be bound to $2"
    if [ "$3" = ro ]; then
        mount -n -o remount,bind,ro "$place" || fail "$1 cannot be bound read-only"
    else # a source in what was bound read-only before
        mount -n -o remount,bind,rw "$place" 2>/dev/null || :
    fi
    shift 3
done
binary=$1 options=$2
shift 2
own=(--write --uid="$user" --gid="$group" --unset-env=PATH --set-env=PATH=$IMAGE_PATH)
[ ! -e "$root/ch/environment" ] || own+=(--set-env)
exec "$binary" "${own[@]}" "${@:1:options}" "$root" -- "${@:options+1}"
"""


class Charliecloud:
    name = "charliecloud"
    binary = "ch-run"
    images = frozenset({"folder"})
    honours = frozenset({"shm_size"})

    def wrap(
        self,
        image: str,
        command: Sequence[str],
        binds: Sequence[Bind],
        env: Env,
        gpus: Gpus,
        extras: Extras = Extras(),  # noqa: B008
    ) -> Wrapped:
        """/dev, /proc, /sys and /tmp are the node's. GPUs need their driver's libraries in the image (``ch-fromhost``)."""
        mounts = [*binds, *(Bind(d.source, d.target) for d in extras.devices if d.source != d.target)]
        argv = ["/bin/bash", "-c", _ENTER, "dethpc-root", _ROOT.replace("$IMAGE_PATH", PATH).strip(), image]
        argv.append(str(len(mounts)))
        for bind in mounts:
            argv += [bind.source, bind.target, "ro" if bind.read_only else "rw"]
        options = [f"--cd={extras.workdir}", *extras.options]
        argv += [extras.binary or self.binary, str(len(options)), *options, *command]
        return Wrapped((), tuple(argv), dict(env.set), tuple(env.passed))


_ENTER = (
    "export USER=${USER:-$(id -un)}; exec unshare --user --map-root-user --mount -- "
    '/bin/bash -c "$1" dethpc-root "$2" "$(id -u)" "$(id -g)" "${@:3}"'
)
