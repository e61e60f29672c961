# Sourced by the other scripts: the system packages that the tests want. What cannot be had is named, and its tests say that they skip.

missing_packages() {
    have() { command -v "$1" >/dev/null || [[ -x /usr/sbin/$1 ]]; }
    have sbatch && have slurmctld && have slurmd || echo slurm-wlm
    have munged || echo munge
    have slurmdbd || echo slurmdbd
    have mariadbd || echo mariadb-server
    [[ -e /usr/include/slurm/slurm.h ]] || echo libslurm-dev
    have g++ || echo g++
    have make || echo make
    have mpirun || echo openmpi-bin
    have mpicc || echo libopenmpi-dev
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || have initdb || echo postgresql
    [[ -e /usr/share/lmod/lmod/init/bash || -e /usr/share/modules/init/bash ]] || echo lmod
    have debootstrap || echo debootstrap
    have ch-run || echo charliecloud
    have podman || echo podman
    have crun || echo crun
    have squashfuse || echo squashfuse
    have newuidmap || echo uidmap
    have npm || echo npm
    have docker-registry || echo docker-registry
    have htpasswd || echo apache2-utils
    have mkfs.btrfs || echo btrfs-progs
    have mksquashfs || echo squashfs-tools
    have chromium || echo chromium
    have nginx || echo nginx
    have sshd || echo openssh-server
    have node || echo nodejs
    [[ -e /usr/lib/apache2/modules/mod_passenger.so ]] || echo libapache2-mod-passenger
    find_python >/dev/null 2>&1 || echo python3-venv
}

install_packages() {
    local missing sudo=()
    scripts/get-apptainer || echo "Apptainer is not installed, so its tests skip"
    mapfile -t missing < <(missing_packages)
    ((${#missing[@]})) || return 0
    ((EUID == 0)) || sudo=(sudo -n)
    if command -v apt-get >/dev/null && "${sudo[@]}" true 2>/dev/null; then
        echo "Installing system packages: ${missing[*]}"
        "${sudo[@]}" apt-get update -qq || true
        "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || true
    fi
    mapfile -t missing < <(missing_packages)
    ((${#missing[@]})) || return 0
    echo "Not installed (Debian's names), so the tests that need them skip: ${missing[*]}"
}

# The mirror of Debian that apt is set up with.
debian_mirror() {
    local mirror
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(CODENAME)' 'Created-By: Packages' 2>/dev/null |
        awk '$2 == "Debian" && $3 !~ /-/ { print $1; exit }')
    [[ $mirror ]] && echo "$mirror" && return
    echo "apt knows no mirror of Debian (after apt-get update)." >&2
    return 1
}
