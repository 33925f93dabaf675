#!/bin/sh
# What the workflows beside this file run. Tried by hand: conformance/ci/run.sh quick sim,abi 1/2 out
#   run.sh quick|full TARGETS SHARD OUT [further options of `hipfile-conformance run`]
set -eu
profile=$1 targets=$2 shard=$3 out=$4
shift 4
exec "${PYTHON:-python3}" -m hipfile_conformance run \
    --target "$targets" --profile "$profile" --shard "$shard" --report "$out" "$@"
