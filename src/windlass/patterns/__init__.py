"""Regular expressions of other people, in time that grows with the text and nothing else.

Python's `re` tries every way that a pattern can be matched in: `(a+)+b` takes minutes for thirty
letters, and holds the whole process meanwhile. Here a place in the pattern is tried once at a
place in the text, as RE2 does it. The pattern is read by Python's own parser, so it means the
same. What cannot be done in this way (lookaround, backreferences) is refused when a user names it
(`core/patterns.py`).

`steps`: from the parser's tree to a list of steps. `groups`: what the groups of the first match
hold. `automaton`: whether there is a match at all, in a text that comes in pieces.

Worker and server both look for patterns: standard library only, syntax of Python 3.8.
"""
