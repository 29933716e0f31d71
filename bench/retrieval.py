# SPDX-License-Identifier: Apache-2.0
"""Tokens of a retrieval task: documents in a row, then questions about passages far back.

    python bench/retrieval.py TEXT.i16 -o OUT.i16 [--tokens 1048576] [--questions 64] [--seed 1]

TEXT holds token ids, little-endian int16, of text that the model has not seen. It is cut into
documents of 2,048 tokens, which are shuffled. A question is the beginning of a passage (32 tokens)
followed by its continuation (32 tokens): while a model reads the continuation, it has to look for
the passage. Passages lie at distances that are spread evenly on a logarithmic scale, so that a cut
to the last tokens keeps questions that can be answered. OUT has as many tokens as asked for, 64 of
its last for each question; where each passage lies is printed as JSON. A trace of it is made as of
any other text, with the questions' tokens as query rows.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from array import array
from pathlib import Path

DOCUMENT, PART = 2048, 32
NEAREST = 2 * DOCUMENT  # tokens between the questions and the nearest passage


def read(path: Path) -> array[int]:
    """Return token ids of a file."""
    tokens = array("h")
    tokens.frombytes(path.read_bytes())
    return tokens


def build(text: array[int], tokens: int, questions: int, seed: int) -> tuple[array[int], list[int]]:
    """Return the task's tokens, and where the passage of each question begins."""
    made = random.Random(seed)
    length = tokens - 2 * PART * questions
    if not NEAREST < length <= len(text):
        raise SystemExit(
            f"retrieval: found {len(text)} tokens of text, expected {length}, more than {NEAREST}"
        )
    starts = list(range(0, len(text) - DOCUMENT + 1, DOCUMENT))
    made.shuffle(starts)
    task = array("h")
    for start in starts:
        task.extend(text[start : start + DOCUMENT])
    task.extend(text[len(text) - len(text) % DOCUMENT :])
    del task[length:]
    passages = []
    for _ in range(questions):
        back = math.exp(made.uniform(math.log(NEAREST), math.log(length)))
        begin = max(0, length - round(back))
        begin = min(begin, length - 2 * PART)
        passages.append(begin)
        task.extend(task[begin : begin + 2 * PART])
    return task, passages


def main() -> None:
    """Write the tokens."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=1 << 20)
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    task, passages = build(read(args.text), args.tokens, args.questions, args.seed)
    args.output.write_bytes(task.tobytes())
    print(json.dumps({"tokens": len(task), "questions": args.questions, "passages": passages}))


if __name__ == "__main__":
    main()
