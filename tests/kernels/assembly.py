"""A compiled kernel as a list of instructions: where each comes from in the source, and which
loops it is in. The same for PTX and for AMD's assembly, which differ in their labels and branches
only. nvidia.py and amd.py make these; the checks and the page read them."""
import os
import re

TREE = os.path.realpath(os.path.join(os.path.dirname(__file__), '..', '..'))
FUNCTION = re.compile(r'^( *)(?:template <.*> )?(?:TA_DEVICE|TA_INLINE|__device__|__global__)\b.*?'
                      r'(\w+)\((?!TA_)')


class Instruction:
    """`name` is the whole opcode, `function` the innermost one of the source it belongs to, and
    `loops` the numbers of the blocks at the head of its loops, the outermost first."""

    def __init__(self, name, text, function):
        self.name, self.text, self.function = name, text, function
        self.loops = ()


class Block:
    def __init__(self):
        self.code, self.targets, self.falls_through = [], [], True


def functions_of(path, cache={}):
    """For each line of a file of this tree, the function whose definition it is in, or ''."""
    if path not in cache:
        names, name, indent = [''], '', ''
        with open(path, encoding='utf-8') as file:
            for line in file.read().split('\n'):
                start = FUNCTION.match(line)
                if start and not name:
                    indent, name = start[1], start[2]
                names.append(name)
                if line.rstrip() in (indent + '}', indent + '};'):
                    name = ''
        cache[path] = names
    return cache[path]


def current_sources():
    """Target: name of its source, both without suffix. A build keeps what compilers said of sources
    that are no more."""
    with open(os.path.join(TREE, 'hip', 'meson.build'), encoding='utf-8') as file:
        return dict(re.findall(r"^ +'(\w+)': '\w+/(\w+)\.hip',$", file.read(), re.M))


def in_tree(file):
    """The file of this tree that a compiler's path ends with, or None."""
    parts = os.path.normpath(file).split(os.sep)
    for i, part in enumerate(parts):
        path = os.path.join(TREE, *parts[i:])
        if part in ('hip', 'src') and os.path.isfile(path):
            return path
    return None


def function_at(file, line):
    """The function at a line of a file, whose path the compiler gave in its own way."""
    path = in_tree(file)
    if not path:
        return os.path.basename(file)
    names = functions_of(path)
    return names[line] if line < len(names) else ''


def cut_into_blocks(lines, files, syntax):
    """The blocks of one kernel. `syntax` has the patterns of labels, branches and ends."""
    blocks, at_label, function = [Block()], {}, ''
    for line in lines:
        place = re.match(r'\s*\.loc\s+(\d+)\s+(\d+)', line)
        if place:
            function = function_at(files.get(place[1], ''), int(place[2]))
            continue
        label = syntax.LABEL.match(line)
        if label:
            if blocks[-1].code:
                blocks.append(Block())
            at_label[label[1]] = len(blocks) - 1
            continue
        code = syntax.CODE.match(line)
        if not code:
            continue
        blocks[-1].code.append(Instruction(code[1], line.strip(), function))
        branch = syntax.BRANCH.search(line)
        if branch or syntax.END.search(line):
            blocks[-1].targets += [branch[1]] if branch else []
            blocks[-1].falls_through = bool(branch and syntax.CONDITIONAL.search(line))
            blocks.append(Block())
    return blocks, at_label


def dominators(follow, before):
    """For each block the set of blocks that every way to it passes."""
    everything = set(range(len(follow)))
    over = [everything] * len(follow)
    over[0] = {0}
    changed = True
    while changed:
        changed = False
        for i in range(1, len(follow)):
            ways = [over[j] for j in before[i]]
            now = (set.intersection(*ways) if ways else set()) | {i}
            if now != over[i]:
                over[i], changed = now, True
    return over


def followers(blocks, at_label, i):
    """The blocks that may come after block i."""
    to = [at_label[t] for t in blocks[i].targets if t in at_label]
    if blocks[i].falls_through and i + 1 < len(blocks):
        to.append(i + 1)
    return to


def find_loops(blocks, at_label):
    """The blocks of each natural loop, by its head."""
    follow = [followers(blocks, at_label, i) for i in range(len(blocks))]
    before = [[] for _ in blocks]
    for i, to in enumerate(follow):
        for j in to:
            before[j].append(i)
    over, loops = dominators(follow, before), {}
    for i, to in enumerate(follow):
        for head in to:
            if head not in over[i]:
                continue
            body, found = loops.setdefault(head, {head}), [i]
            while found:
                j = found.pop()
                if j not in body:
                    body.add(j)
                    found += before[j]
    return loops


def read_kernel(lines, files, syntax):
    """All instructions of a kernel."""
    blocks, at_label = cut_into_blocks(lines, files, syntax)
    loops = find_loops(blocks, at_label)
    code = []
    for i, block in enumerate(blocks):
        around = sorted((h for h in loops if i in loops[h]), key=lambda h: -len(loops[h]))
        for instruction in block.code:
            instruction.loops = tuple(around)
            code.append(instruction)
    return code
