"""`python -m polydomo` is the `polydomo` command."""

from polydomo.cli.main import run

if __name__ == "__main__":
    run()
