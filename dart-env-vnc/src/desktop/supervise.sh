# Runs one program and makes sure that nothing of it outlives the process that asked for it.
#
#   sh -c "$THIS" dart-supervise DIRECTORY LABEL PROGRAM [ARGUMENT]...
#
# Standard input is a pipe whose other end only the asking process holds: it reaches its end when
# that process lets go or dies in whatever way, kill -9 included. Then every process of the
# program's session and every process that carries the label is ended, and DIRECTORY is removed.
# Needs a POSIX shell, setsid, grep and /proc. Arguments are data; none becomes part of the text.

dir=$1 label=$2
shift 2
# Handled, not ignored: ignored signals would be inherited by the program.
trap : HUP INT TERM

DART_DESKTOP=$label setsid "$@" </dev/null >"$dir/stdout" 2>"$dir/stderr" &
session=$!
echo "$session"
exec >/dev/null 2>&1

# Prints when the process of the session began, in clock ticks: its id alone may be that of a later
# process, once the whole session has ended.
born() {
    { read -r line <"/proc/$session/stat"; } || return 1
    set -- ${line##*") "}
    printf '%s' "${20}"
}
birth=$(born)

# Whether the id does not belong to a stranger. While a process of the session lives, it cannot.
ours() {
    now=$(born) || return 0
    [ "$now" = "$birth" ]
}

# Prints the living processes of the session.
members() {
    for stat in /proc/[0-9]*/stat; do
        { read -r line <"$stat"; } 2>/dev/null || continue
        # pid (name) state parent group session ...; the name may hold spaces and brackets.
        set -- ${line##*") "}
        [ "$4" = "$session" ] && [ "$1" != Z ] && printf '%s ' "${line%% *}"
    done
}

# Prints the living processes that carry the label, also those that made a session of their own.
labelled() {
    for environ in $(grep -lsaF "DART_DESKTOP=$label" /proc/[0-9]*/environ); do
        environ=${environ#/proc/}
        printf '%s ' "${environ%/environ}"
    done
}

# Until the asking process is gone.
cat >/dev/null

ours && kill -TERM "-$session"
rounds=0
# The shell collects its child while it waits for sleep, so the process id is gone with the process.
while ours && kill -0 "$session" && [ "$rounds" -lt 30 ]; do
    sleep 0.05
    rounds=$((rounds + 1))
done
ours && kill -KILL "-$session"
rounds=0
while left="$(ours && members)$(labelled)"; [ -n "$left" ] && [ "$rounds" -lt 20 ]; do
    kill -KILL $left
    sleep 0.05
    rounds=$((rounds + 1))
done
rm -rf -- "$dir"
# The parent directory goes with its last child.
rmdir -- "${dir%/*}"
