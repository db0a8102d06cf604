"""The documents, and how the site is made of them: `make docs`.

What a document says can be read as it is, in Markdown, wherever the repository is shown; the site is made of
copies. What is written elsewhere (settings, manual pages, examples) is taken from there, and stands in no document by
hand.
"""
