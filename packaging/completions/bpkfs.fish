# fish completion for bpkfs(1); the options are read from its own --help.

function __bpkfs_help
    set -l words (commandline -opc)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    command $program --help
end

function __bpkfs_options
    set -l before (string match -r '^.*,' -- (commandline -ct))
    for option in (__bpkfs_help | string replace -rf '^ +-o (\S+) .*' '$1' | string split ,) \
            layout=aligned layout=legacy
        test "$option" = layout=L; or echo "$before"(string replace -r '=[A-Z].*' = -- $option)
    end
end

function __bpkfs_arguments
    set -l words (commandline -opc)
    if test "$words[-1]" = -o
        __bpkfs_options
        return
    else if string match -q -- '-*' (commandline -ct)
        __bpkfs_help | string replace -rf '^ +((?:-\w, )?--?\w+).*' '$1' | string split ', ' | sort -u
        return
    end
    set -l given 0
    set -l skip no
    for word in $words[2..-1]
        if test $skip = yes
            set skip no
        else if test "$word" = -o
            set skip yes
        else if not string match -q -- '-?*' $word
            set given (math $given + 1)
        end
    end
    switch $given
        case 0
            __fish_complete_suffix .bpk
        case 1
            __fish_complete_directories (commandline -ct)
    end
end

complete -c bpkfs -f -a '(__bpkfs_arguments)'
