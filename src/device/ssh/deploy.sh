# Makes sure that this device has its agent, and becomes it. POSIX sh; tested with dash, bash and busybox.
#
# It comes over stdin behind one line of assignments:
#   nonce      every line of ours begins with it: what a login script prints does not
#   role       serve or probe
#   bin_dir    as configured, or empty
#   state_dir  likewise
# Programs come over the same stdin, each after it was asked for: a shell may read further than it has executed.

say() {
    printf '%s\n' "$nonce $*" >&3
}

# A directory as configured, with the home of this device.
expand() {
    case $1 in
        '~/'*) printf '%s\n' "$HOME/${1#'~/'}" ;;
        *) printf '%s\n' "$1" ;;
    esac
}

# Directory $1, made if it isn't there, is ours alone; else says why not.
usable() {
    mkdir -p "${1%/*}" 2>&1 || return
    # Another machine that shares its place may make it at the same moment; what counts is how it is then.
    [ -d "$1" ] || mkdir -m 700 "$1" 2> /dev/null || [ -d "$1" ] || mkdir -m 700 "$1" 2>&1 || return
    # Mode, links, owner.
    set -- $(LC_ALL=C ls -ldn "$1" 2>&1)
    case $1 in
        l*) echo 'is a link' ;;
        d????-??-*) [ "$3" = "$(id -u)" ] || echo 'belongs to another user' ;;
        *) echo 'others may write there' ;;
    esac
}

# File $1 has sha256 $2. Where nothing can tell, only one that was just copied will do, by its length $3.
whole() {
    if command -v sha256sum > /dev/null; then
        sum=$(sha256sum < "$1") && [ "${sum%% *}" = "$2" ]
    else
        [ -n "$3" ] && [ "$(($(wc -c < "$1")))" -eq "$3" ]
    fi
} 2> /dev/null

# Path of program $1 with sha256 $3 in directory $2.
path() {
    printf '%s/%s-%.12s\n' "$2" "$1" "$3"
}

# Program $1 in directory $2, with sha256 $3 and length $4: there already, or sent; else says why not.
provide() {
    ! whole "$(path "$1" "$2" "$3")" "$3" '' || return
    # Left by a copy to this machine that was cut: others, of the same name even, may share the directory, and know nothing of each other's
    # processes.
    here=$(uname -n)-$(cat /etc/machine-id /proc/device-tree/serial-number 2> /dev/null | tr -cd '[:alnum:]')
    for old in "$2"/.isotherm-*.new.*@"$here"; do
        pid=${old##*.new.}
        kill -0 "${pid%%@*}" 2> /dev/null || rm -f "$old"
    done
    new=$2/.$1.new.$$@$here
    (umask 077 && : > "$new") 2>&1 || return
    say "send $1"
    # All of it is taken in, even where there is no room for it.
    why=$({ head -c "$4" | { cat > "$new"; cat > /dev/null; }; } 2>&1)
    if whole "$new" "$3" "$4"; then
        { chmod 700 "$new" && { sync "$new" 2> /dev/null || sync; } && mv -f "$new" "$(path "$1" "$2" "$3")"; } 2>&1
    else
        echo "${why:-the copy is not whole}"
    fi
    rm -f "$new"
}

# Becomes the agent in directory $1; comes back if that can't be.
try() {
    agent=$(path isotherm-agent "$1" "$sha256")
    why=$(usable "$1")
    [ -n "$why" ] || why=$(provide isotherm-agent "$1" "$sha256" "$bytes")
    # Used from now on: one that starts elsewhere doesn't take it for forgotten.
    touch -ac "$agent" 2> /dev/null
    # A file system that executes nothing, a processor that doesn't understand: its exit status is not asked, an empty file's is 0.
    if [ -z "$why" ]; then
        why=$("$agent" --version 2>&1 < /dev/null)
        case $why in
            'isotherm-agent '*) why= ;;
            *)
                rm -f "$agent"
                why=${why:-it runs and says nothing}
                ;;
        esac
    fi
    if [ -n "$why" ]; then
        say "refused $1: $(printf '%s' "$why" | tr '\n' ' ')"
        return
    fi
    if [ "$companion" != - ]; then
        # Where it can't be, the agent does without and says so.
        [ -n "$(provide isotherm-companion "$1" "$companion" "$companion_bytes")" ] ||
            export ISOTHERM_COMPANION="$(path isotherm-companion "$1" "$companion")"
    fi
    say started
    set -- "$agent" "$role" --nonce "$nonce"
    case $role,$state_dir in
        serve,?*) set -- "$@" --state-dir "$(expand "$state_dir")" ;;
    esac
    exec "$@" 3>&-
}

main() {
    exec 3>&1
    gpu=-
    for sign in /proc/driver/nvidia /dev/nvidiactl /dev/dxg; do
        [ ! -e "$sign" ] || gpu=nvidia
    done
    say "machine $(uname -m) $(getconf LONG_BIT 2> /dev/null || echo -) $gpu"
    # Nothing comes where there is no agent for this machine.
    read -r sha256 bytes companion companion_bytes || exit
    case $bin_dir,${XDG_CACHE_HOME:-} in
        ?*,*) set -- "$(expand "$bin_dir")" ;;
        ,/*) set -- "$XDG_CACHE_HOME/isotherm" ;;
        *) set -- "$HOME/.cache/isotherm" ;;
    esac
    [ -n "$bin_dir" ] || set -- "$1" "/var/tmp/isotherm-$(id -u)" "/dev/shm/isotherm-$(id -u)"
    for dir in "$@"; do
        try "$dir"
    done
    say failed
}

main
