"""Which command of some lines of bash failed, in the words of those lines."""

from __future__ import annotations


def watched(handler: str) -> list[str]:
    """Lines after which bash runs ``handler CODE COMMAND``, ``handler`` being a command, for each one that fails, until
    ``UNWATCHED``.

    What fails last inside of a function, such as Lmod's ``module``, is its ``return``. DEBUG does not look into functions, and so
    knows the call: the command before the one of the trap, which it sees as well.
    """
    return [
        "dethpc_watched() {",
        "    local command=$2",
        "    case $2 in return*) command=$3 ;; esac",
        f'    {handler} "$1" "${{command%%$\'\\n\'*}}"',
        "}",
        "trap 'dethpc_before_last=${dethpc_last-} dethpc_last=$BASH_COMMAND' DEBUG",
        """trap 'dethpc_watched "$?" "$BASH_COMMAND" "$dethpc_before_last"' ERR""",
    ]


UNWATCHED = "trap - DEBUG ERR"
