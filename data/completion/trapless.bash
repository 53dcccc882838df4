# bash completion for trapless

_trapless_pids() {
    local entry
    for entry in /proc/[0-9]*; do
        [ -r "$entry/maps" ] && echo "${entry#/proc/}"
    done
}

# Functions of the process or the file that the words name.
_trapless_functions() {
    local target=("$@")
    [ ${#target[@]} -gt 0 ] || return
    trapless list "${target[@]}" "$cur*" 2>/dev/null |
        sed 's/^[^ ]* *[0-9]*  [^ ]*  //; s/ \[[^]]*\]//g; s/, /\n/g' | head -n 500
}

_trapless() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]} options i pid= file=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "list explain count trace latency detach bench --help --version" -- "$cur")
        return
    fi
    for ((i = 2; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --) # the words of another command
            mapfile -t COMPREPLY < <(compgen -c -f -- "$cur")
            return
            ;;
        -p | --pid) pid=${COMP_WORDS[i + 1]} ;;
        -*) ;;
        *) [ -n "$file" ] || file=${COMP_WORDS[i]} ;;
        esac
    done
    case $prev in
    -p | --pid)
        mapfile -t COMPREPLY < <(compgen -W "$(_trapless_pids)" -- "$cur")
        return
        ;;
    --method)
        mapfile -t COMPREPLY < <(compgen -W "auto jump kernel simulate slot step" -- "$cur")
        return
        ;;
    --return)
        mapfile -t COMPREPLY < <(compgen -W "exit trampoline" -- "$cur")
        return
        ;;
    --debug-dir)
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return
        ;;
    -o | --output | --probes)
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
    -d | --duration | -i | --interval | --ring-events) return ;;
    esac
    case $command in
    list) options="--pid --debug-dir --json" ;;
    explain) options="--pid --all-instructions --return --method --allow-traps --debug-dir --json" ;;
    count | latency) options="--pid --duration --interval --probes --follow --no-follow --return --method --allow-traps --debug-dir --json" ;;
    trace) options="--pid --duration --probes --ring-events --follow --no-follow --return --method --allow-traps --debug-dir --json" ;;
    detach) options="--pid" ;;
    bench) options="--json --quick --allow-traps" ;;
    *) return ;;
    esac
    case $cur in
    -*)
        mapfile -t COMPREPLY < <(compgen -W "$options --output --quiet --verbose --help --version" -- "$cur")
        return
        ;;
    esac
    case $command in
    bench) return ;;
    list | explain)
        if [ -z "$pid" ] && { [ -z "$file" ] || [ "$cur" = "$file" ]; }; then
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
        fi
        ;;
    esac
    if [ -n "$pid" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_trapless_functions -p "$pid")" -- "$cur")
    elif [ "$command" = list ] || [ "$command" = explain ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_trapless_functions "$file")" -- "$cur")
    fi
}

complete -F _trapless trapless
