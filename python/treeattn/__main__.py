"""`python -m treeattn info`: which library this is, and what it can do here."""
import sys

import treeattn

USAGE = 'usage: python -m treeattn info'


def main() -> int:
    if sys.argv[1:] in (['--help'], ['-h']):
        print(USAGE)
        return 0
    if sys.argv[1:] not in ([], ['info']):
        print(USAGE, file=sys.stderr)
        return 2
    print(f'package: treeattn {treeattn.__version__}\nlibrary: {treeattn.library_path}\n'
          f'{treeattn.info().rstrip()}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
