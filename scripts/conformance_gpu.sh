#!/bin/sh
# Run the conformance suite, or one command, against cuFile on an NVIDIA GPU, from a bare clone.
#
#   scripts/conformance_gpu.sh prepare DIR          what cuFile needs to know about the file system below DIR
#   scripts/conformance_gpu.sh measure OUT          measure.json and measure.txt (hipfile_conformance.probes)
#   scripts/conformance_gpu.sh run OUT [options]    hipfile-conformance run --target cufile --report OUT
#
# cuFile looks the type of a file system up in udev's database. A machine without udev has none, and each registration
# fails with 5027; `prepare` writes the one record that is missing. It needs root and touches nothing that exists.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHON=${PYTHON:-python3}
PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH PYTHONUNBUFFERED=1
unset CUFILE_FORCE_COMPAT_MODE || true # with it asynchronous operations fail in cuFile 1.15.1
folder=${CONFORMANCE_FOLDER:-$here/.conformance-files}

prepare() {
    mkdir -p "$1"
    device=$("$PYTHON" -c 'import os, sys; d = os.stat(sys.argv[1]).st_dev; print(f"{os.major(d)}:{os.minor(d)}")' "$1")
    type=$(stat -f -c %T "$1")
    case $type in
        ext2/ext3) type=ext4 ;;
        tmpfs) echo "cuFile refuses tmpfs: set CONFORMANCE_FOLDER to a folder on ext4 or xfs" >&2; exit 2 ;;
    esac
    record=/run/udev/data/b$device
    if [ ! -e "$record" ]; then
        mkdir -p /run/udev/data
        printf 'I:1\nE:ID_FS_TYPE=%s\nE:ID_FS_USAGE=filesystem\nE:DEVTYPE=disk\nG:systemd\n' "$type" >"$record"
        [ -e /run/udev/control ] || : >/run/udev/control
        echo "wrote $record ($type)" >&2
    fi
}

verb=${1:-}
[ $# -gt 0 ] && shift
case $verb in
    prepare) prepare "${1:-$folder}" ;;
    measure)
        out=$1; shift
        prepare "$folder"
        exec "$PYTHON" -m hipfile_conformance.probes --folder "$folder" --out "$out" "$@"
        ;;
    run)
        out=$1; shift
        prepare "$folder"
        exec "$PYTHON" -m hipfile_conformance run --target cufile --folder "$folder" --report "$out" "$@"
        ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
