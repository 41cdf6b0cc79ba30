#!/usr/bin/env python3
"""Text for `treeattn-bench llama`, which knows numbers of words alone, by the tokenizer.json beside
a model's weights. Needs Python's `tokenizers` (pip install tokenizers; transformers brings it).

    words_text.py encode FOLDER <TEXT >WORDS    numbers for --words
    words_text.py decode FOLDER RUN.json        what was chosen in each row of --json, as text
"""
import json
import os
import sys

try:
    from tokenizers import Tokenizer
except ImportError:
    sys.exit("words_text.py needs Python's tokenizers: pip install tokenizers")


def read_tokenizer(folder):
    path = os.path.join(folder, "tokenizer.json")
    if not os.path.exists(path):
        sys.exit(f"words_text.py: {path} is not there: FOLDER must have a model's tokenizer.json")
    return Tokenizer.from_file(path)


def encode(folder):
    words = read_tokenizer(folder).encode(sys.stdin.read()).ids
    if not words:
        sys.exit("words_text.py: the text on standard input has no words")
    print(*words)


def decode(folder, path):
    tokenizer = read_tokenizer(folder)
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    for row in rows:
        print(f"{row['tokens']} tokens, {row['ranks']} ranks, {row['algorithm']}: "
              f"{tokenizer.decode(row['words'])}")


def main():
    arguments = sys.argv[1:]
    if len(arguments) == 2 and arguments[0] == "encode":
        encode(arguments[1])
    elif len(arguments) == 3 and arguments[0] == "decode":
        decode(*arguments[1:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
