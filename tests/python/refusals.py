"""What a program under test says of strangers."""


def without_refusals(errors):
    """errors, without refusals: a reader of another test may call a port that its dead writer had and this one has."""
    return "\n".join(line for line in errors.splitlines() if "a peer was turned away" not in line)
