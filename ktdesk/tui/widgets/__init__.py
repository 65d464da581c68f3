"""Widgets that several screens show. They are given values and post messages; they ask no server and no settings."""
