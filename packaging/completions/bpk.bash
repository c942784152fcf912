# bash completion for bpk(1) and bpkfs(1).
#
# Verbs, options and what a verb takes are read from the programs' own --help. It needs nothing of
# the package bash-completion.

# The words up to the cursor as typed, in `words`. COMP_WORDS cuts at the characters of
# COMP_WORDBREAKS too; what no blank is before belongs together.
_bpk_words() {
    local i word rest=$COMP_LINE
    words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i > 0)) && [[ $rest != [[:blank:]]* ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
        rest=${rest#"${rest%%[![:blank:]]*}"}
        rest=${rest#"$word"}
    done
}

# A word without its quoting, in `plain`.
_bpk_plain() {
    local text=$1 quote='' char i
    plain=
    # shellcheck disable=SC2088 # as it was typed
    if [[ $text == '~/'* ]]; then
        plain=$HOME
        text=${text:1}
    fi
    for ((i = 0; i < ${#text}; i++)); do
        char=${text:i:1}
        if [[ $char == \\ && $quote != \' ]]; then
            ((i++))
            plain+=${text:i:1}
        elif [[ -z $quote && $char == [\"\'] ]]; then
            quote=$char
        elif [[ -n $quote && $char == "$quote" ]]; then
            quote=
        else
            plain+=$char
        fi
    done
}

# Adds those of the lines of stdin that begin with the current word. Readline replaces what is
# after the last of COMP_WORDBREAKS only.
_bpk_offer() {
    local candidate head=${words[-1]}
    local last=${COMP_WORDS[COMP_CWORD]}
    [[ $last == [:=] ]] || head=${head%"$last"}
    local plain
    _bpk_plain "$head"
    while IFS= read -r candidate; do
        [[ $candidate == "$current"* ]] && COMPREPLY+=("${candidate#"$plain"}")
    done
}

_bpk_offer_packs() {
    compopt -o filenames
    _bpk_offer < <(compgen -f -X '!*.bpk' -- "$current"; compgen -d -X '*.bpk.edits' -- "$current")
}

# Readline quotes names of files that are there, so those of tensors are quoted here.
_bpk_quote() {
    local i name
    for i in "${!COMPREPLY[@]}"; do
        name=${COMPREPLY[i]}
        case ${COMP_WORDS[COMP_CWORD]} in
        \'*) name=${name//\'/\'\\\'\'} ;;
        \"*)
            name=${name//\\/\\\\}
            name=${name//\"/\\\"}
            name=${name//\$/\\\$}
            name=${name//\`/\\\`}
            ;;
        *) printf -v name %q "$name" ;;
        esac
        COMPREPLY[i]=$name
    done
}

_bpk_offer_tensors() { # PROGRAM PACK
    _bpk_offer < <(command "$1" ls -- "$2" 2>/dev/null |
        sed -nE 's/^[^ ]+( +[A-Z][A-Za-z0-9]*)? +(scalar|[0-9x]+) +[0-9]+  //; t found
            d; :found; s/  ! .*//; p')
    _bpk_quote
}

_bpk_offer_mounts() {
    local point type
    compopt -o filenames
    _bpk_offer < <(while read -r _ point type _; do
        [[ $type == fuse.bpkfs ]] || continue
        printf -v point %b "$point"
        printf '%s\n' "$point"
        [[ $point != "$PWD"/* ]] || printf '%s\n' "${point#"$PWD"/}"
    done </proc/self/mounts)
}

# Whether OPTION takes the next word; USAGE is the first line of the verb's --help.
_bpk_takes_value() { # USAGE OPTION
    [[ $2 == -o || $1 == *"[$2 "[A-Z]* ]]
}

# What the verb takes at the cursor, in `kind`; its last kind may come again. `pack` is its first.
_bpk_kind() { # USAGE
    local kinds i place=0
    read -ra kinds < <(sed -E 's/^usage: bpk [a-z]+//; s/\[-[^]]*\]//g; s/--[a-z0-9]+//g
        s/\|-//; s/[].[]/ /g' <<<"$1")
    for ((i = 2; i < ${#words[@]} - 1; i++)); do
        if _bpk_takes_value "$1" "${words[i]}"; then
            ((i++))
        elif [[ ${words[i]} != -?* ]]; then
            ((place > 0)) || pack=${words[i]}
            ((place++))
        fi
    done
    ((place < ${#kinds[@]})) || place=$((${#kinds[@]} - 1))
    ((place < 0)) || kind=${kinds[place]}
}

_bpk() {
    local words plain current program usage kind='' pack=''
    COMPREPLY=()
    _bpk_words
    _bpk_plain "$1"
    program=$plain
    _bpk_plain "${words[-1]}"
    current=$plain
    if ((${#words[@]} == 2)); then
        _bpk_offer < <(command "$program" --help | sed -nE 's/^ +([a-z]+) .*/\1/p'
            printf '%s\n' --help --version)
        return
    fi
    usage=$(command "$program" "${words[1]}" --help 2>/dev/null | sed 1q)
    _bpk_kind "$usage"
    if [[ ${words[-2]} == -o ]]; then
        _bpk_offer < <(printf '%s\n' layout=aligned layout=legacy)
    elif [[ ${#words[@]} -gt 3 ]] && _bpk_takes_value "$usage" "${words[-2]}"; then
        return
    elif [[ $current == -* ]]; then
        _bpk_offer < <(grep -oE -e '--?[a-z][a-z0-9]*' <<<"$usage"; printf '%s\n' --help)
    elif [[ $kind == FILE ]]; then
        _bpk_offer_packs
    elif [[ $kind == MNT ]]; then
        _bpk_offer_mounts
    elif [[ $kind == TENSOR || $kind == PATTERN ]]; then
        _bpk_plain "$pack"
        _bpk_offer_tensors "$program" "$plain"
    fi
}

# The names of -o, with the sign where a value follows; those that are spelt out, with it.
_bpkfs_options() { # PROGRAM
    command "$1" --help | sed -nE 's/^ +-o ([^ ]+) .*/\1/p' | tr , '\n' | sed 's/=[A-Z].*/=/; /^layout=$/d'
    printf '%s\n' layout=aligned layout=legacy
}

_bpkfs() {
    local words plain current program i place=0 before=''
    COMPREPLY=()
    _bpk_words
    _bpk_plain "$1"
    program=$plain
    _bpk_plain "${words[-1]}"
    current=$plain
    if [[ ${words[-2]} == -o ]]; then
        [[ $current != *,* ]] || before=${current%,*},
        compopt -o nospace
        _bpk_offer < <(_bpkfs_options "$program" | sed "s/^/${before//[\/&]/\\&}/")
        return
    elif [[ $current == -* ]]; then
        _bpk_offer < <(command "$program" --help | grep -oE '^ +(-[a-zA-Z], )?--?[a-zA-Z]+' |
            tr -s ' ,' '\n' | sort -u)
        return
    fi
    for ((i = 1; i < ${#words[@]} - 1; i++)); do
        if [[ ${words[i]} == -o ]]; then
            ((i++))
        elif [[ ${words[i]} != -?* ]]; then
            ((place++))
        fi
    done
    if ((place == 0)); then
        _bpk_offer_packs
    elif ((place == 1)); then
        compopt -o filenames
        _bpk_offer < <(compgen -d -- "$current")
    fi
}

# Where nothing of this fits, files: a pack may be called anything.
complete -o bashdefault -o default -F _bpk bpk
complete -o bashdefault -o default -F _bpkfs bpkfs
