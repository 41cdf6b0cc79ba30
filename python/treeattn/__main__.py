"""`python -m treeattn info`: which library this is, and what it can do here."""
import os
import sys

import treeattn

USAGE = 'usage: python -m treeattn info'


def main() -> int:
    if sys.argv[1:] in (['--help'], ['-h']):
        print(USAGE)
        return 0
    if sys.argv[1:] not in ([], ['info']):
        print(f"{USAGE}\ntreeattn: there is no command '{' '.join(sys.argv[1:])}'", file=sys.stderr)
        return 2
    try:
        print(f'package: treeattn {treeattn.__version__}\nlibrary: {treeattn.library_path}\n'
              f'{treeattn.info().rstrip()}', flush=True)
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == '__main__':
    sys.exit(main())
