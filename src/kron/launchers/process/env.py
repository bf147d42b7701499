"""Variables by which a program runs other code than its own: no schedule from outside may set them.

Which programs may be started is of no use where their variables say what they load.
"""

from collections.abc import Iterable

# Loaders and interpreters that take everything with these beginnings for themselves.
PREFIXES = ("LD_", "DYLD_", "PYTHON", "PERL", "RUBY", "BASH_FUNC_")
NAMES = frozenset(
    {
        "PATH", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "IFS", "PS4", "GCONV_PATH",
        "NODE_OPTIONS", "NODE_PATH", "CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS",
    }
)  # fmt: skip


def unsafe_variables(env: Iterable[tuple[str, str]]) -> list[str]:
    """Return those of some variables that decide which code runs."""
    return [name for name, _ in env if name in NAMES or name.startswith(PREFIXES)]
