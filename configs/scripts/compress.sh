#!/bin/sh
# Compress a few megabytes of text with gzip at level $1; print the ratio, and as the last line a JSON object.
set -eu
level=$1
awk -v mib="$PAYLOAD_MIB" 'BEGIN { for (i = 0; i < mib * 16384; i++) printf "%08d the quick brown fox jumps over the lazy dog %07d\n", i, i * 7919 % 999983 }' > "$TMPDIR/payload"
bytes=$(wc -c < "$TMPDIR/payload")
start=$(date +%s%N)
gzip -n -c "-$level" "$TMPDIR/payload" > "$TMPDIR/packed"
end=$(date +%s%N)
packed=$(wc -c < "$TMPDIR/packed")
digest=$(gzip -dc "$TMPDIR/packed" | sha256sum | cut -d' ' -f1)
awk -v b="$bytes" -v p="$packed" 'BEGIN { printf "ratio: %.4f\n", b / p }'
awk -v b="$bytes" -v ns="$((end - start))" -v sha="$digest" 'BEGIN { printf "{\"throughput_mb_s\": %.3f, \"sha256\": \"%s\"}\n", b * 1000 / ns, sha }'
