"""``hipfile-sim clauses``: the sentences of the contract that the model implements."""

from __future__ import annotations

import click

from hipfile_sim.cli.tables import table


@click.command()
@click.argument("wanted", required=False, metavar="[ID|AREA]")
@click.option("--function", metavar="NAME", help="Only clauses on this function, e.g. hipFileReadAsync.")
def command(wanted: str | None, function: str | None) -> int:
    """List the clauses of the contract, those of an area (async, life, ...), or explain one by its id."""
    from hipfile_sim.driver.clauses import all_clauses, for_function

    known = {clause.id: clause for clause in all_clauses()}
    chosen = list(known.values()) if function is None else list(for_function(function))
    if function is not None and not chosen:
        raise click.UsageError(f"no clause is on a function {function!r}")
    if wanted in known:
        clause = known[wanted]
        click.echo(f"{clause.id}  ({clause.level})\n\n{clause.text}\n\nsource: {clause.source}")
        click.echo(f"functions: {', '.join(clause.functions) or 'all'}")
        for profile, answer in clause.answers.items():
            click.echo(f"  {profile}: {answer}")
        return 0
    if wanted is not None:
        chosen = [clause for clause in chosen if clause.id.startswith(f"{wanted}.")]
        if not chosen:
            areas = sorted({name.partition(".")[0] for name in known})
            raise click.UsageError(f"no clause or area {wanted!r}; areas: {', '.join(areas)}")
    table(["clause", "level", "says"], [[clause.id, clause.level, clause.text] for clause in chosen])
    return 0
