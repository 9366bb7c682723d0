#!/bin/sh
# A FAKE of nvidia-smi, written for isotherm's tests: it says of each field what $DIR/nvml.conf says, one `field value` a line, and
# `[N/A]` of a field that isn't there. `unknown FIELD` makes it a version that doesn't know that field; `hang` as power.draw never ends.
echo "$1" >> "$DIR/smi.log"
conf() { sed -n "s/^$1 //p" "$DIR/nvml.conf" 2> /dev/null; }
case $1 in
--query-gpu=*)
    line=
    IFS=,
    for field in ${1#--query-gpu=}; do
        if [ "$(conf unknown)" = "$field" ]; then
            echo "Field \"$field\" is not a valid field to query."
            exit 2
        fi
        value=$(conf "$field")
        [ "$value" != hang ] || exec sleep 1000
        line="$line${line:+, }${value:-[N/A]}"
    done
    echo "$line"
    ;;
--query-compute-apps=*) conf apps ;;
*) echo "Fake GPU" ;;
esac
