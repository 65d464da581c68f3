"""Markdown as lines of styled text, of a given width. Growing text is rendered anew from its last block on alone."""
