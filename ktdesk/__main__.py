"""`python -m ktdesk` is `ktdesk`."""

from ktdesk.cli import main

main()
