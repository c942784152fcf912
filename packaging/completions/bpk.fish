# fish completion for bpk(1); bpkfs.fish has that of bpkfs(1).
#
# Verbs, options and what a verb takes are read from the program's own --help.

# The program as it was called.
function __bpk_run
    set -l words (commandline -opc)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    command $program $argv 2>/dev/null
end

function __bpk_verbs
    __bpk_run --help | string replace -rf '^    ([a-z]+) (?:.*  )?(.*)$' '$1\t$2'
    printf '%s\n' --help --version
end

function __bpk_tensors -a pack
    __bpk_run ls -- (string replace -r '^~/' "$HOME/" -- $pack) |
        string replace -rf '^[^ ]+(?: +[A-Z]\w*)? +((?:scalar|[0-9x]+)) +[0-9]+  (.*?)(?:  ! .*)?$' '$2\t$1'
end

function __bpk_mounts
    while read -l _source point type rest
        test "$type" = fuse.bpkfs; or continue
        set -l point (printf %b (string replace -ra '\\\\(?=[0-7]{3})' '\\\\0' -- $point))
        echo $point
        string replace -f -- $PWD/ '' $point
    end </proc/self/mounts
end

# Whether the option takes the next word; usage is the first line of the verb's --help.
function __bpk_takes_value -a usage option
    test "$option" = -o; or string match -rq -- '\['(string escape --style=regex -- $option)' [A-Z]' $usage
end

function __bpk_arguments
    set -l words (commandline -opc)
    set -l usage (__bpk_run $words[2] --help)[1]
    if test "$words[-1]" = -o
        printf '%s\n' layout=aligned layout=legacy
        return
    else if test (count $words) -gt 2; and __bpk_takes_value "$usage" $words[-1]
        __fish_complete_path (commandline -ct)
        return
    end
    if string match -q -- '-*' (commandline -ct)
        string match -ra -- '--?[a-z][a-z0-9]*' $usage
        echo --help
        return
    end

    # What the verb takes, and which of it is at the cursor; the last may come again.
    set -l kinds (string replace -r '^usage: bpk [a-z]+' '' -- $usage |
        string replace -ra '\[-[^]]*\]|--[a-z0-9]+|\|-|[].[]' ' ' | string match -ra '[A-Z]+')
    set -l given
    set -l skip no
    for word in $words[3..-1]
        if test $skip = yes
            set skip no
        else if __bpk_takes_value "$usage" $word
            set skip yes
        else if not string match -q -- '-?*' $word
            set -a given $word
        end
    end
    set -l place (math (count $given) + 1)
    test $place -le (count $kinds); or set place (count $kinds)
    test $place -gt 0; or return
    switch $kinds[$place]
        case FILE
            __fish_complete_suffix .bpk
        case MNT
            __bpk_mounts
        case TENSOR PATTERN
            __bpk_tensors $given[1]
        case '*'
            __fish_complete_path (commandline -ct)
    end
end

complete -c bpk -f
complete -c bpk -n 'test (count (commandline -opc)) -eq 1' -a '(__bpk_verbs)'
complete -c bpk -n 'test (count (commandline -opc)) -gt 1' -a '(__bpk_arguments)'
