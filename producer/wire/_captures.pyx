# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Matches the steps of ``captures.py`` against many bodies at once."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy

cdef enum:
    ONE, GREEDY, POSSESSIVE, LAZY, OPEN, SHUT, CHOICE, JUMP, END
    ABSENT = 0xFFFFFFFF
    DEEPEST = 32

cdef packed struct Step:
    uint32_t kind, least, most, target
    uint8_t ones[128]
    uint8_t until[128]

cdef struct Program:
    const Step* steps
    size_t count
    size_t slots
    bint anchored
    const uint8_t* first

cdef struct Body:
    const uint8_t* data
    size_t size

cdef struct Span:
    # The start of a group in the data, and its size; ABSENT if it did not match.
    size_t start
    uint32_t size

cdef struct Run:
    # A run that may take another number of characters: the number of its step plus one, its start and its end.
    size_t number, begin, at

cdef struct Trail:
    size_t depth
    Run runs[DEEPEST]


def capture(bytes steps not None, size_t slots, bytes first not None, bint anchored, size_t rows, bytes ends not None,
            bytes data not None):
    cdef Program program
    cdef bytes found = PyBytes_FromStringAndSize(NULL, rows)
    cdef bytes room = PyBytes_FromStringAndSize(NULL, rows * slots * sizeof(Span))
    cdef uint8_t* known = <uint8_t*> PyBytes_AS_STRING(found)
    cdef Span* spans = <Span*> PyBytes_AS_STRING(room)
    cdef const uint8_t* block = <const uint8_t*> PyBytes_AS_STRING(data)
    cdef const uint64_t* bounds = NULL
    cdef size_t slot, size = len(data)
    program.steps, program.count = <const Step*> PyBytes_AS_STRING(steps), len(steps) // sizeof(Step)
    program.slots, program.anchored, program.first = slots, anchored, <const uint8_t*> PyBytes_AS_STRING(first)
    if ends:
        bounds = <const uint64_t*> PyBytes_AS_STRING(ends)
    with nogil:
        run_all(&program, block, size, bounds, rows, known, spans)
    return found, [column(block, spans + slot, rows, slots) for slot in range(slots)]


cdef void run_all(const Program* program, const uint8_t* block, size_t size, const uint64_t* bounds, size_t rows,
                  uint8_t* known, Span* spans) noexcept nogil:
    cdef size_t row, at = 0, end, slot
    cdef Body body
    cdef const uint8_t* newline
    for row in range(rows):
        at = at if at < size else size
        body.data = block + at
        if bounds != NULL:
            end = bounds[row] if at <= bounds[row] <= size else at
            body.size, at = end - at, end
        else:
            newline = <const uint8_t*> memchr(body.data, 10, size - at)
            end = size if newline == NULL else newline - block
            body.size, at = end - at, end + 1
            if body.size and block[end - 1] == 13:
                body.size -= 1
        known[row] = is_ascii(body) and search(program, body, spans)
        for slot in range(program.slots):
            if known[row]:
                spans[slot].start += body.data - block
            else:
                spans[slot].start, spans[slot].size = 0, ABSENT
        spans += program.slots


cdef bint is_ascii(Body body) noexcept nogil:
    cdef uint8_t seen = 0
    cdef size_t at
    for at in range(body.size):
        seen |= body.data[at]
    return seen < 128


cdef bint search(const Program* program, Body body, Span* spans) noexcept nogil:
    """Return True if the pattern was found, at the first position where it can match."""
    cdef size_t start = 0
    if not program.anchored:
        while start < body.size and not program.first[body.data[start]]:
            start += 1
        if start == body.size:
            start = 0
    return matches(program, body, start, spans)


cdef bint matches(const Program* program, Body body, size_t at, Span* spans) noexcept nogil:
    cdef Trail trail
    # The total number of characters that runs may take; a search with more backtracking is left to Pattern.
    cdef size_t patience = 1024 + 64 * body.size
    cdef size_t number = 0, slot, begin
    cdef const Step* step
    cdef bint fits
    trail.depth = 0
    for slot in range(program.slots):
        spans[slot].start, spans[slot].size = 0, ABSENT
    while number < program.count:
        step = program.steps + number
        number += 1
        fits = True
        if step.kind == ONE:
            fits = at < body.size and step.ones[body.data[at]]
            at += 1
        elif step.kind == GREEDY or step.kind == POSSESSIVE:
            begin = at
            at = many(step, body, at)
            patience -= min(patience, at - begin)
            fits = at - begin >= step.least
            if fits and step.kind == GREEDY and at - begin > step.least and not note(&trail, number, begin, at):
                return False
        elif step.kind == LAZY:
            begin = at
            fits = few(step, body, begin, &at, &patience)
            if fits and not note(&trail, number, begin, at):
                return False
        elif step.kind == OPEN:
            spans[step.target].start = at
        elif step.kind == SHUT:
            spans[step.target].size = <uint32_t> (at - spans[step.target].start)
        elif step.kind == CHOICE:
            if at >= body.size or not step.ones[body.data[at]]:
                number = step.target
            else:
                trail.depth = 0  # Before it backtracks further, re would try the other alternative.
                forget_groups(program, step.target, spans)
        elif step.kind == JUMP:
            number = step.target
        else:
            fits = at == body.size or (step.target and at + 1 == body.size and body.data[at] == 10)
        if not fits:
            patience -= min(patience, 1)
            if patience == 0 or not go_back(program, body, &trail, &number, &at, &patience):
                return False
    return True


cdef void forget_groups(const Program* program, size_t other, Span* spans) noexcept nogil:
    """Clear the groups of the other alternatives, which may be set from before a run took fewer characters."""
    cdef const Step* step
    for other in range(other, program.steps[other - 1].target):
        step = program.steps + other
        if step.kind == OPEN:
            spans[step.target].start, spans[step.target].size = 0, ABSENT


cdef inline bint note(Trail* trail, size_t number, size_t begin, size_t at) noexcept nogil:
    """Remember a run that may take another number of characters."""
    if trail.depth == DEEPEST:
        return False
    trail.runs[trail.depth].number, trail.runs[trail.depth].begin, trail.runs[trail.depth].at = number, begin, at
    trail.depth += 1
    return True


cdef bint go_back(const Program* program, Body body, Trail* trail, size_t* number, size_t* at,
                  size_t* patience) noexcept nogil:
    """Let the last run take one character less, or a lazy one more; return False if none can.

    After this run, only last alternatives were taken. So all groups after it are set again, unless another alternative
    is taken now.
    """
    cdef Run* run
    cdef const Step* step
    while trail.depth:
        run = &trail.runs[trail.depth - 1]
        step = program.steps + run.number - 1
        if step.kind == GREEDY:
            run.at -= 1
            if run.at - run.begin == step.least:
                trail.depth -= 1
            break
        if run.at < body.size and step.ones[body.data[run.at]] and run.at - run.begin < step.most:
            run.at += 1
            if few(step, body, run.begin, &run.at, patience):
                break
        trail.depth -= 1
    else:
        return False
    number[0], at[0] = run.number, run.at
    return True


cdef size_t many(const Step* step, Body body, size_t at) noexcept nogil:
    """Return the position after as many characters as possible."""
    cdef size_t end = body.size
    if end - at > step.most:
        end = at + step.most
    while at < end and step.ones[body.data[at]]:
        at += 1
    return at


cdef bint few(const Step* step, Body body, size_t begin, size_t* at, size_t* patience) noexcept nogil:
    """Set ``at`` to the first position where the next step can match; an empty ``until`` means the end."""
    cdef size_t end = body.size, now = at[0]
    if end - begin > step.most:
        end = begin + step.most
    while now - begin < step.least or (now < body.size and not step.until[body.data[now]]):
        if now >= end or not step.ones[body.data[now]]:
            return False
        now += 1
    patience[0] -= min(patience[0], now - at[0])
    at[0] = now
    return True


cdef tuple column(const uint8_t* block, const Span* spans, size_t rows, size_t apart):
    """Return the sizes of a group's values, and the values."""
    cdef bytes sizes = PyBytes_FromStringAndSize(NULL, rows * 4), values
    cdef uint32_t* each = <uint32_t*> PyBytes_AS_STRING(sizes)
    cdef size_t row, total = 0
    cdef uint8_t* at
    for row in range(rows):
        each[row] = spans[row * apart].size
        if each[row] != ABSENT:
            total += each[row]
    values = PyBytes_FromStringAndSize(NULL, total)
    at = <uint8_t*> PyBytes_AS_STRING(values)
    for row in range(rows):
        if each[row] != ABSENT:
            memcpy(at, block + spans[row * apart].start, each[row])
            at += each[row]
    return sizes, values
