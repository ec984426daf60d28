"""Every ladder there is, and the rows on it one by one."""

from itertools import combinations


def places(ladder, lengths):
    return sum(min(rung for rung in ladder if rung >= length) for length in lengths)


def fewest_places(lengths, rungs, multiple_of):
    candidates = range(multiple_of, max(lengths) + multiple_of + 1, multiple_of)
    ladders = [ladder for count in range(1, rungs + 1) for ladder in combinations(candidates, count)]
    return min(places(ladder, lengths) for ladder in ladders if ladder[-1] >= max(lengths))
