#!/bin/sh
# Prints what fills every sidecar: more output than a record takes, more samples than a metric takes. `flaky` fails in its warm-up and
# in its first measured run.
if [ "$1" = flaky ] && [ ! -e tried.twice ]; then
    mv tried tried.twice 2> /dev/null || touch tried
    echo "no luck yet" >&2
    exit 3
fi
awk 'BEGIN { for (i = 0; i < 3000; i++) print "filler of line", i, "so that the stream does not fit" }'
awk 'BEGIN { printf "{\"times_ms\": ["; for (i = 0; i < 5000; i++) printf "%s%d.5", (i ? ", " : ""), i % 10; print "], \"answer\": 42}" }'
