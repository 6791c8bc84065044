# Becomes a program that cannot outlive the process that asked for it.
#
#   sh -c "$THIS" dart-adb DIRECTORY PROGRAM [ARGUMENT]...
#
# Standard input is a pipe whose other end only the asking process holds: it reaches its end when
# that process lets go or dies in whatever way, kill -9 included. Then the program is killed and
# DIRECTORY is removed. Needs a POSIX shell and /proc. Arguments are data; none becomes part of
# the text.

dir=$1
shift
exec 3<&0 </dev/null
(
    trap '' HUP INT TERM
    exec >/dev/null 2>&1
    cat <&3
    # A program that has ended is no parent any more, and its number may be another's by now.
    read -r stat </proc/self/stat
    set -- ${stat##*") "}
    [ "$2" = "$$" ] && kill -KILL "$$"
    rm -rf -- "$dir"
) &
exec 3<&-
exec "$@"
